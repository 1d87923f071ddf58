#include "src/roster/roster_words.h"

#include <charconv>
#include <vector>

#include "src/system/check.h"
#include "src/system/texts.h"

namespace owt {
namespace {

// The fields of a message, one after the other.
class Fields {
 public:
  Fields(const std::string& text, size_t count) : fields_(unpacked(text)) {
    if (fields_.size() != count) fail("a message about the workers has ", fields_.size(), " fields, wanted ", count);
  }
  std::string text() { return fields_[next_++]; }
  int number() {
    const std::string& field = fields_[next_++];
    int value = 0;
    const char* const end = field.data() + field.size();
    const auto [stopped, error] = std::from_chars(field.data(), end, value);
    if (error != std::errc() || stopped != end) fail("a message about the workers has '", field, "', wanted a number");
    return value;
  }

 private:
  std::vector<std::string> fields_;
  size_t next_ = 0;
};

std::string text_of(int number) { return std::to_string(number); }

}  // namespace

std::string Introduction::text() const {
  return packed({version, host, text_of(process), process_space, text_of(port), text_of(order)});
}

Introduction introduction_in(const std::string& text) {
  Fields fields(text, 6);
  return {fields.text(), fields.text(), fields.number(), fields.text(), fields.number(), fields.number()};
}

std::string Departure::text() const {
  return packed({text_of(world), text_of(port), text_of(patience_s), text_of(leaves), text_of(did_steps),
                 text_of(lost.value_or(-1)), why});
}

Departure departure_in(const std::string& text) {
  Fields fields(text, 7);
  Departure found{fields.number(),
                  fields.number(),
                  fields.number(),
                  fields.number() != 0,
                  fields.number() != 0,
                  fields.number(),
                  ""};
  if (*found.lost < 0) found.lost.reset();
  found.why = fields.text();
  return found;
}

std::string NewWorld::text() const {
  return packed({text_of(world), text_of(rank), text_of(ranks), text_of(local_rank), text_of(local_ranks), address,
                 text_of(port), text_of(least), run, change});
}

NewWorld new_world_in(const std::string& text) {
  Fields fields(text, 10);
  return {fields.number(), fields.number(), fields.number(), fields.number(), fields.number(),
          fields.text(),   fields.number(), fields.number(), fields.text(),   fields.text()};
}

std::string RunQuestion::text() const { return packed({version, run, text_of(workers)}); }

RunQuestion run_question_in(const std::string& text) {
  Fields fields(text, 3);
  return {fields.text(), fields.text(), fields.number()};
}

std::string RunAnswer::text() const {
  return packed({text_of(now), text_of(least), text_of(most), text_of(soon), refusal});
}

RunAnswer run_answer_in(const std::string& text) {
  Fields fields(text, 5);
  return {fields.number(), fields.number(), fields.number(), fields.number(), fields.text()};
}

}  // namespace owt

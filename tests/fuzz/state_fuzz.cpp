// Reads any bytes as the state.json of a checkpoint; also with a corrected checksum, which a fuzzer does not find.
#include <nlohmann/json.hpp>

#include "src/files/checkpoint_files.h"
#include "src/system/files.h"
#include "src/system/json_text.h"
#include "tests/fuzz/input.h"

namespace {

using Json = nlohmann::ordered_json;

void parse(const std::string& text) {
  owt::try_reading([&] {
    const owt::RunState state = owt::RunState::from_json(text, "fuzz/state.json");
    owt::promise(state.step >= 0 && state.epoch >= 0 && state.workers >= 1, "counts are counts");
    owt::promise(owt::RunState::from_json(state.to_json(), "again") == state, "a state comes back as it was");
  });
}

std::string with_checksum(const std::string& text) {
  Json json = owt::json_object<Json>(text);
  json.erase("checksum");
  json["checksum"] = owt::hex(owt::checksum_of(json.dump()));
  return json.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const std::string text(owt::text_of(bytes, count));
  parse(text);
  owt::try_reading([&] { parse(with_checksum(text)); });
  return 0;
}

#include "src/plan/filter_settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

using Value = FilterSettings::Value;

struct NamedValue {
  const char* name;
  Value value;
  int bytes;
};
constexpr NamedValue kValues[] = {{"bf16", Value::kBf16, 2},   {"fp16", Value::kFp16, 2},
                                  {"fix8", Value::kFix8, 1},   {"fix16", Value::kFix16, 2},
                                  {"coin8", Value::kCoin8, 1}, {"coin16", Value::kCoin16, 2}};
constexpr const char* kWanted = "wanted significant:T, kkt:T, top:P, skip:Q, bf16, fp16, fix8, fix16, coin8 or coin16";

int bytes_of(Value value) {
  const auto* const found =
      std::find_if(std::begin(kValues), std::end(kValues), [&](auto& v) { return v.value == value; });
  return found == std::end(kValues) ? 4 : found->bytes;
}

bool is_fixed(Value value) { return value != Value::kF32 && value != Value::kBf16 && value != Value::kFp16; }

double number_after_colon(const std::string& word) {
  const size_t colon = word.find(':');
  double number = 0;
  const char* const end = word.data() + word.size();
  const auto read = colon == std::string::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                               : std::from_chars(word.data() + colon + 1, end, number);
  if (read.ec != std::errc() || read.ptr != end || !(number > 0) || !std::isfinite(number))
    fail("filter '", word, "': ", kWanted);
  return number;
}

void set_once(double& to, double off, double number, double most, const std::string& word) {
  if (to != off) fail("filter '", word, "' is given twice");
  if (number > most) fail("filter '", word, "': wanted a share, above 0 and up to 1");
  to = number;
}

}  // namespace

bool FilterSettings::fixes() const { return is_fixed(value); }

int64_t FilterSettings::value_bytes() const { return bytes_of(value); }

int64_t FilterSettings::message_bytes(int64_t entries, int64_t sent, int64_t tensors) const {
  const int64_t which = sent == entries ? 0 : std::min((entries + 7) / 8, 4 * sent);
  return (chooses() ? 8 + which : 0) + sent * value_bytes() + (fixes() ? 8 * tensors : 0);
}

std::string FilterSettings::text() const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (significant > 0) add(format("significant:{:g}", significant));
  if (kkt > 0) add(format("kkt:{:g}", kkt));
  if (top < 1) add(format("top:{:g}", top));
  if (skip < 1) add(format("skip:{:g}", skip));
  for (const NamedValue& each : kValues)
    if (each.value == value) add(each.name);
  return text;
}

FilterSettings filters_from(const std::vector<std::string>& words) {
  FilterSettings settings;
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find(':'));
    const auto* const type =
        std::find_if(std::begin(kValues), std::end(kValues), [&](auto& v) { return word == v.name; });
    if (name == "significant") {
      set_once(settings.significant, 0, number_after_colon(word), INFINITY, word);
    } else if (name == "kkt") {
      set_once(settings.kkt, 0, number_after_colon(word), INFINITY, word);
    } else if (name == "top") {
      set_once(settings.top, 1, number_after_colon(word), 1, word);
    } else if (name == "skip") {
      set_once(settings.skip, 1, number_after_colon(word), 1, word);
    } else if (type == std::end(kValues)) {
      fail("filter '", word, "': ", kWanted);
    } else if (settings.value != Value::kF32) {
      fail("filter '", word, "': values have one type, and another is given as well");
    } else {
      settings.value = type->value;
    }
  }
  return settings;
}

}  // namespace owt

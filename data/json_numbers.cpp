#include "data/json_numbers.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "src/core/check.h"
#include "src/core/files.h"

namespace owt {

JsonNumbers::JsonNumbers(const std::string& path) : path_(path), text_(read_file(path)) {}

std::vector<double> JsonNumbers::all(const std::string& key) const {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::string quoted = '"' + key + '"';
  size_t at = text_.find(quoted);
  if (at != std::string::npos) at = text_.find_first_not_of(kSpace, at + quoted.size());
  if (at == std::string::npos || text_[at] != ':') return {};
  std::vector<double> values;
  int depth = 0;
  do {
    at = text_.find_first_not_of(depth > 0 ? " \t\r\n," : kSpace, at + 1);
    if (at == std::string::npos) return {};
    if (text_[at] == '[') {
      ++depth;
    } else if (text_[at] == ']') {
      --depth;
    } else {
      double value = 0;
      const auto [end, error] = std::from_chars(text_.data() + at, text_.data() + text_.size(), value);
      if (error != std::errc{} || !std::isfinite(value)) return {};
      values.push_back(value);
      at = static_cast<size_t>(end - text_.data()) - 1;
    }
  } while (depth > 0);
  return values;
}

int64_t JsonNumbers::count(const std::string& key) const {
  const std::vector<double> values = all(key);
  if (values.size() != 1 || values[0] < 0 || values[0] > 1e15 || values[0] != std::floor(values[0]))
    fail(path_, ": no count under '", key, "'; the file is damaged or of another kind");
  return static_cast<int64_t>(values[0]);
}

std::vector<double> JsonNumbers::numbers(const std::string& key, size_t count) const {
  std::vector<double> values = all(key);
  if (values.size() != count)
    fail(path_, ": ", values.size(), " numbers under '", key, "', wanted ", count,
         "; the file is damaged or of another kind");
  return values;
}

}  // namespace owt

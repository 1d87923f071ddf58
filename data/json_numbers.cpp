#include "data/json_numbers.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/json_text.h"

namespace owt {
namespace {

using nlohmann::json;

constexpr const char* kOtherFile = "; the file is damaged or of another kind";

void append(const json& value, std::vector<double>& numbers) {
  if (value.is_number()) numbers.push_back(value.get<double>());
  if (value.is_array())
    for (const json& one : value) append(one, numbers);
}

json object_in(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return json_object<json>(text);
  } catch (const Error& error) {
    fail(path, ": ", error.what(), kOtherFile);
  }
}

}  // namespace

JsonNumbers::JsonNumbers(const std::string& path) : path_(path) {
  const json file = object_in(path);
  for (const auto& [key, value] : file.items()) append(value, values_[key]);
}

const std::vector<double>& JsonNumbers::all(const std::string& key) const {
  static const std::vector<double> none;
  const auto found = values_.find(key);
  return found == values_.end() ? none : found->second;
}

int64_t JsonNumbers::count(const std::string& key) const {
  const std::vector<double>& values = all(key);
  if (values.size() != 1 || values[0] < 0 || values[0] > 1e15 || values[0] != std::floor(values[0]))
    fail(path_, ": no count under '", key, "'", kOtherFile);
  return static_cast<int64_t>(values[0]);
}

std::vector<double> JsonNumbers::numbers(const std::string& key, size_t count) const {
  const std::vector<double>& values = all(key);
  if (values.size() != count)
    fail(path_, ": ", values.size(), " numbers under '", key, "', wanted ", count, kOtherFile);
  return values;
}

}  // namespace owt

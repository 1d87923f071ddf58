// Parsing JSON from untrusted files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "src/system/check.h"

namespace owt {

constexpr int kDeepestJson = 64;  // levels of lists and objects

// Nesting depth of the deepest value. For text that is not JSON the result is some number.
int json_depth(std::string_view text);

// The functions below take one of nlohmann's classes as Json. They throw Error that says what is wrong, without naming
// a file.

// Throws only if the text is not JSON because of a number that no double can hold, such as 1e400.
template <class Json>
void check_json_numbers_fit(const std::string& text) {
  if (json_depth(text) > kDeepestJson) return;
  std::string key;
  const auto note_key = [&](int, typename Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key) key = parsed.template get<std::string>();
    return true;
  };
  try {
    const Json unused = Json::parse(text, note_key);
  } catch (const typename Json::out_of_range& e) {
    const std::string why = e.what();  // "... '1e400'"
    fail("'", key, "' is ", why.substr(std::min(why.find('\''), why.size()), 40), ", which no number can hold");
  } catch (const typename Json::exception&) {
  }
}

// The value of the text; discarded if it is not JSON or nested deeper than kDeepestJson. Deeper nesting would overflow
// the stack, because such values are copied, compared and printed by recursion. Nothing else in owt parses JSON into
// values.
template <class Json>
Json json_or_discarded(std::string_view text) {
  if (json_depth(text) > kDeepestJson) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// The object of the text.
template <class Json>
Json json_object(const std::string& text) {
  // The library takes a byte 0 for the end and ignores what follows.
  if (text.find('\0') != std::string::npos) fail("it is no JSON: it has a byte of value 0");
  if (json_depth(text) > kDeepestJson) fail("its JSON is nested deeper than ", kDeepestJson, " levels");
  Json object = json_or_discarded<Json>(text);
  if (object.is_discarded()) check_json_numbers_fit<Json>(text);
  if (!object.is_object()) fail("it is no JSON object");
  return object;
}

template <class Json>
[[noreturn]] void not_wanted(const std::string& key, const Json& object, const std::string& wanted) {
  if (!object.is_object() || !object.contains(key)) fail("there is no '", key, "', wanted ", wanted);
  const Json& value = object.at(key);
  fail("'", key, "' is ", value.is_number() ? value.dump() : value.type_name(), ", wanted ", wanted);
}

// The value under a key: std::string, bool, std::vector<double>, std::map<std::string, std::string>, ... `wanted` names
// the type in messages, "a text".
template <class T, class Json>
T json_get(const Json& object, const std::string& key, const std::string& wanted) {
  try {
    return object.at(key).template get<T>();
  } catch (const typename Json::exception&) {
    not_wanted(key, object, wanted);
  }
}
template <class T, class Json>
T json_get_or(const Json& object, const std::string& key, const T& otherwise, const std::string& wanted) {
  return object.contains(key) ? json_get<T>(object, key, wanted) : otherwise;
}

// The list of objects under a key.
template <class Json>
const Json& json_objects(const Json& object, const std::string& key) {
  const auto is_object = [](const Json& one) { return one.is_object(); };
  if (!object.contains(key) || !object.at(key).is_array() || !std::ranges::all_of(object.at(key), is_object))
    not_wanted(key, object, "a list of objects");
  return object.at(key);
}

// The integer under a key, from low to high. JSON reads an integer of more than 64 bits as a floating-point number.
template <class Json>
int64_t json_whole(const Json& object, const std::string& key, int64_t low,
                   int64_t high = std::numeric_limits<int64_t>::max()) {
  const Json value = object.value(key, Json());
  const bool whole = value.is_number_integer() &&
                     (!value.is_number_unsigned() || std::in_range<int64_t>(value.template get<uint64_t>()));
  if (!whole || value.template get<int64_t>() < low || value.template get<int64_t>() > high)
    not_wanted(key, object, concat("a whole number from ", low, " to ", high));
  return value.template get<int64_t>();
}

// The number under a key, greater than 0 and at most high.
template <class Json>
double json_positive(const Json& object, const std::string& key, double high) {
  const Json value = object.value(key, Json());
  if (!value.is_number() || !(value.template get<double>() > 0) || value.template get<double>() > high)
    not_wanted(key, object, concat("a number above 0 and up to ", high));
  return value.template get<double>();
}

}  // namespace owt

// JSON of files that anyone may have made.
#pragma once

#include <string>
#include <string_view>

#include "src/core/check.h"

namespace owt {

constexpr int kDeepestJson = 64;  // levels of lists and objects

// The levels of the deepest value. Text that is no JSON has some number of them, too.
int json_depth(std::string_view text);

// The object that the text is; Json is one of nlohmann's. What is nested without end would end the program: such values
// are copied, compared and printed by recursion. Throws Error that says what is wrong, without naming a file.
template <class Json>
Json json_object(const std::string& text) {
  if (json_depth(text) > kDeepestJson) fail("its JSON is nested deeper than ", kDeepestJson, " levels");
  Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) fail("it is no JSON object");
  return object;
}

}  // namespace owt

// The values of a TOML document one by one, for lists and comparisons.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace owt {

// Every value as text by its dotted key, keys in order. Tables of an array are named by their 'name', or their number.
// Throws Error naming `name` and the line if the text is not TOML.
std::vector<std::pair<std::string, std::string>> toml_values(const std::string& text, const std::string& name);

}  // namespace owt

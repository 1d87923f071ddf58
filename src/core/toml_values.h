// The values of a TOML document one by one, to list and to compare.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace owt {

// Every value as text by its dotted key, keys in order; tables of an array go by their 'name', or their number. Throws
// Error for what is no TOML, naming `name` and the line.
std::vector<std::pair<std::string, std::string>> toml_values(const std::string& text, const std::string& name);

}  // namespace owt

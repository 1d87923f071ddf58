// The values of a recipe, key by key, for comparisons.
#pragma once

#include <map>
#include <string>

#include "src/system/config.h"

namespace owt {

// Every value by its dotted key, as TOML. Tables of an array are named by their name, "model.layer.conv1.kernel", or by
// their number.
std::map<std::string, std::string> values_of(const Config& config);

}  // namespace owt

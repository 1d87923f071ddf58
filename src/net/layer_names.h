// Layers by name in options and recipes: a name, or a shell pattern ("fc*"), of a layer or of a composite layer that
// contains it.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "layers/base/param.h"

namespace owt {

std::string layer_of(const Param& param);  // "block1.conv1" of "block1.conv1.weight"

bool names_layer(const std::string& pattern, const std::string& layer);
bool names_layer(std::span<const std::string> patterns, const std::string& layer);  // any of them

std::vector<std::string> layers_with_weights(const std::vector<Param*>& params);  // in order
// The layers that match a pattern. Throws Error, which begins with `option`, for a pattern that matches none of them.
std::set<std::string> layers_named(const std::string& option, std::span<const std::string> patterns,
                                   const std::vector<std::string>& layers);

}  // namespace owt

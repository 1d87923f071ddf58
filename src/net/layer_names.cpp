#include "src/net/layer_names.h"

#include <fnmatch.h>

#include <algorithm>

#include "src/system/check.h"
#include "src/system/config.h"

namespace owt {

std::string layer_of(const Param& param) { return param.name.substr(0, param.name.rfind('.')); }

bool names_layer(const std::string& pattern, const std::string& layer) {
  for (size_t end = layer.find('.');; end = layer.find('.', end + 1)) {
    if (fnmatch(pattern.c_str(), layer.substr(0, end).c_str(), 0) == 0) return true;
    if (end == std::string::npos) return false;
  }
}

bool names_layer(std::span<const std::string> patterns, const std::string& layer) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return names_layer(pattern, layer); });
}

std::vector<std::string> layers_with_weights(const std::vector<Param*>& params) {
  std::vector<std::string> layers;
  for (const Param* param : params)
    if (layers.empty() || layers.back() != layer_of(*param)) layers.push_back(layer_of(*param));
  return layers;
}

std::set<std::string> layers_named(const std::string& option, std::span<const std::string> patterns,
                                   const std::vector<std::string>& layers) {
  std::set<std::string> named;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> of_pattern;
    std::copy_if(layers.begin(), layers.end(), std::back_inserter(of_pattern),
                 [&](const std::string& layer) { return names_layer(pattern, layer); });
    if (of_pattern.empty()) {
      const std::string near = nearest(pattern, layers);
      fail(option, " ", pattern, ": no layer with weights is called that; there are ", joined(layers),
           near.empty() ? "" : concat("; did you mean '", near, "'?"));
    }
    named.insert(of_pattern.begin(), of_pattern.end());
  }
  return named;
}

}  // namespace owt

#include "src/net/layer_types.h"

#include "src/net/branches.h"
#include "src/net/residual.h"
#include "src/net/scale.h"

namespace owt {

std::span<const LayerType> net_layer_types() {
  static const std::vector<LayerType> all = [] {
    std::vector<LayerType> types(layer_types().begin(), layer_types().end());
    types.push_back({"residual", make_residual});
    types.push_back({"branches", make_branches});
    types.push_back({"scale", make_scale});
    return types;
  }();
  return all;
}

}  // namespace owt

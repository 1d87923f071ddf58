// A residual block: two branches of layers whose outputs are added.
//   y = relu(body(x) + shortcut(x))
// Keys: body (array of layer tables, not empty), shortcut (array of layer tables; missing: x itself), relu (true;
// false: the sum without relu). Names of inner layers: src/net/composite.h.
// Errors: branches with different outputs, two layers of one name.
// Source: He et al. 2016 (arXiv:1512.03385), figures 2 and 5.
#pragma once

#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_residual(const LayerSpec& spec);

}  // namespace owt

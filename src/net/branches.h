// Branches of layers whose outputs are concatenated: images along their channels, other inputs along their features.
//   y = [branch_1(x), branch_2(x), ...]
// Keys: branches (array of tables, at least two): layers (array of layer tables; missing or empty: x itself), name
// (missing: none). Layer `conv` of branch `left` of `mixed` is called mixed.left.conv; in a branch without a name it is
// mixed.conv (src/net/composite.h).
// Errors: images of different sizes, images together with features, two layers of one name.
// Source: Szegedy et al. 2015 (arXiv:1409.4842), figure 2.
#pragma once

#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_branches(const LayerSpec& spec);

}  // namespace owt

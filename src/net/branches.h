// Branches of layers whose outputs lie side by side: of images as channels, else as features.
//   y = [branch_1(x), branch_2(x), ...]
// Keys: branches (array of tables, two at least): layers (array of layer tables; missing or empty: x itself), name
// (missing: none). A layer `conv` of the branch `left` of `mixed` is called mixed.left.conv, of a branch without a name
// mixed.conv (src/net/composite.h).
// Errors: images of different sizes, images beside features, two layers of one name.
// Source: Szegedy et al. 2015 (arXiv:1409.4842), figure 2.
#pragma once

#include "layers/layer.h"

namespace owt {

std::unique_ptr<Layer> make_branches(const LayerSpec& spec);

}  // namespace owt

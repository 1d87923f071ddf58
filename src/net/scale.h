// Multiplies every channel of an image by a number that layers compute from the image (squeeze and excitation).
//   y[n,h,w,c] = x[n,h,w,c] * s[n,c],   s = body(x);   for rows of features y[n,f] = x[n,f] * s[n,f]
//   dx = dy * s + the gradient of body for ds, where ds[n,c] = sum over h,w of dy[n,h,w,c] * x[n,h,w,c]
// Keys: body (array of layer tables, not empty), e.g. global_avg_pool, dense, relu, dense, activation. Its output has
// one value for each channel (or feature) of x, as 1 x 1 x C or as features. Names of inner layers:
// src/net/composite.h.
// Errors: a body with another output, two layers of one name.
// Source: Hu et al. 2018 (arXiv:1709.01507), section 3.
#pragma once

#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_scale(const LayerSpec& spec);

}  // namespace owt

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

// All tensors have the same shape and element type. The sum is computed in f32. y = a + b, or its positive part; NaN
// stays NaN.
void add_branches(Cpu, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream);
void add_branches(Cuda, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream);
// dx = dy where a + b > 0, otherwise 0. Does not use y, which an in-place layer may have overwritten.
void where_sum_is_positive(Cpu, const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& dx, const Stream& stream);
void where_sum_is_positive(Cuda, const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& dx, const Stream& stream);

}  // namespace owt

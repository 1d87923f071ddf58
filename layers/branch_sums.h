// Sums of the outputs of two branches, and of their gradients.
#pragma once

#include "src/core/device.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

// All tensors have the same shape and element type. The sum is computed in f32. y = a + b, or its positive part; NaN
// stays NaN.
void add_branches(Cpu, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream);
void add_branches(Cuda, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream);
// dx = a + b where x > 0, otherwise 0.
void add_where_positive(Cpu, const Tensor& a, const Tensor& b, const Tensor& x, Tensor& dx, const Stream& stream);
void add_where_positive(Cuda, const Tensor& a, const Tensor& b, const Tensor& x, Tensor& dx, const Stream& stream);

}  // namespace owt

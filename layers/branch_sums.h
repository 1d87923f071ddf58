// What composite layers compute from the outputs of their branches, and from gradients.
#pragma once

#include "src/core/device.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

// All tensors have the same element type, and here the same shape. The sum is computed in f32. y = a + b, or its
// positive part; NaN stays NaN.
void add_branches(Cpu, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream);
void add_branches(Cuda, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream);
// dx = a + b where x > 0, otherwise 0.
void add_where_positive(Cpu, const Tensor& a, const Tensor& b, const Tensor& x, Tensor& dx, const Stream& stream);
void add_where_positive(Cuda, const Tensor& a, const Tensor& b, const Tensor& x, Tensor& dx, const Stream& stream);

// y = factor * (a - b)
void scale_difference(Cpu, const Tensor& a, const Tensor& b, float factor, Tensor& y, const Stream& stream);
void scale_difference(Cuda, const Tensor& a, const Tensor& b, float factor, Tensor& y, const Stream& stream);

// x, y, dy: N x H x W x C or N x F; factors and sums: N x C or N x F.
// y = x * factors of the row and channel; adds: this is added to y.
void scale_channels(Cpu, const Tensor& x, const Tensor& factors, bool adds, Tensor& y, const Stream& stream);
void scale_channels(Cuda, const Tensor& x, const Tensor& factors, bool adds, Tensor& y, const Stream& stream);
// sums = the sum of x * dy over the positions of an image, for each row and channel. The order of summation depends
// only on the shape of a row and on the device.
void sum_channel_products(Cpu, const Tensor& x, const Tensor& dy, Tensor& sums, const Stream& stream);
void sum_channel_products(Cuda, const Tensor& x, const Tensor& dy, Tensor& sums, const Stream& stream);

}  // namespace owt

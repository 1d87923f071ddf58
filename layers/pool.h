// Pooling over image planes: N x H x W x C -> N x OH x OW x C.
//
// Keys: kernel (height and width of the window), stride (default: kernel), pad (default 0, at most kernel / 2),
// round = "down" | "up" (default "down"); for avg_pool count_pad (true).
//
//   OH = (H + 2 * pad - kernel) / stride + 1, rounded down or up; OW likewise. When rounding up, a last window that
//   would start beyond the image and its left padding is dropped, so every window holds at least one pixel (as
//   PyTorch's ceil_mode). The window of output (oh, ow) starts at (oh * stride - pad, ow * stride - pad).
//
// max_pool: y = the largest pixel of the window. Padding is ignored. A window with NaN gives NaN. If several pixels are
//   the maximum, the first in row order gets dy.
// avg_pool: y = sum of the window's pixels / number of its positions in the padded image [-pad, H + pad) x [-pad, W +
//   pad). Padding counts as zeros. Positions beyond the padding (round = "up") are not counted, as in Caffe, and in
//   PyTorch with its default count_include_pad. With count_pad = false only pixels are counted.
// global_avg_pool: N x H x W x C -> N x C, the mean over all positions. Keys: none.
#pragma once

#include "layers/base/geometry.h"
#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_max_pool(const LayerSpec& spec);
std::unique_ptr<Layer> make_avg_pool(const LayerSpec& spec);
std::unique_ptr<Layer> make_global_avg_pool(const LayerSpec& spec);

// The window of a max_pool or avg_pool, valid while the layer lives; null for any other layer.
const Window* max_pool_window(const Layer& layer);
const Window* avg_pool_window(const Layer& layer);

// `in` is the shape of the batch.
std::unique_ptr<Op> bind_max_pool(Cpu, const Window& window, const Shape& in);
std::unique_ptr<Op> bind_max_pool(Cuda, const Window& window, const Shape& in);
// Max pooling whose x is the output of a relu, after a bias (null: no bias). Backward covers all three layers: dx is
// the gradient of the relu's input. The sum of dx over all positions is added to the bias gradient, or replaces it if
// it counts as zero. Backward reads dy but not x: a maximum is positive exactly where its pixel is, and only such a
// maximum passes its gradient on. The order of summation depends only on the extents and the type.
std::unique_ptr<Op> bind_relu_max_pool(Cuda, const Window& window, const Shape& in, Param* bias);
std::unique_ptr<Op> bind_avg_pool(Cpu, const Window& window, const Shape& in);
std::unique_ptr<Op> bind_avg_pool(Cuda, const Window& window, const Shape& in);
// The counterpart of bind_relu_max_pool() for average pooling; backward reads x as well.
std::unique_ptr<Op> bind_relu_avg_pool(Cuda, const Window& window, const Shape& in, Param* bias);
std::unique_ptr<Op> bind_global_avg_pool(Cpu, const Shape& in);
std::unique_ptr<Op> bind_global_avg_pool(Cuda, const Shape& in);

}  // namespace owt

// Pooling over image planes: N x H x W x C -> N x OH x OW x C.
//
// Keys: kernel (height and width of the window), stride (default: kernel), pad (default 0, at most kernel / 2),
// round = "down" | "up" (default "down").
//
//   OH = (H + 2 * pad - kernel) / stride + 1, rounded down or up; so for OW. Rounded up, a last window that would start
//   beyond the image and its left padding is dropped, so that every window holds at least one pixel (PyTorch's
//   ceil_mode). Output (oh, ow) sees the window that starts at (oh * stride - pad, ow * stride - pad).
//
// max_pool: y = the largest pixel of the window; padding never wins. NaN in a window gives NaN. Of equal maxima the
//   first in row order gets dy.
// avg_pool: y = sum of the window's pixels / its positions inside the padded image [-pad, H + pad) x [-pad, W + pad).
//   Padding counts as zeros; what sticks out beyond it because of round = "up" does not count, as in PyTorch with its
//   default count_include_pad, and in Caffe.
// global_avg_pool: N x H x W x C -> N x C, the mean over all positions. Keys: none.
#pragma once

#include "layers/layer.h"

namespace owt {

struct Window {
  int64_t kernel = 1, stride = 1, pad = 0;
  bool round_up = false;

  // Windows along an image extent; below 1 where not one fits.
  int64_t count(int64_t extent) const;
};

std::unique_ptr<Layer> make_max_pool(const LayerSpec& spec);
std::unique_ptr<Layer> make_avg_pool(const LayerSpec& spec);
std::unique_ptr<Layer> make_global_avg_pool(const LayerSpec& spec);

// The window of a max_pool or of an avg_pool, while the layer lives; null for any other layer.
const Window* max_pool_window(const Layer& layer);
const Window* avg_pool_window(const Layer& layer);

// `in` is the shape of the batch.
std::unique_ptr<Op> bind_max_pool(Cpu, const Window& window, const Shape& in);
std::unique_ptr<Op> bind_max_pool(Cuda, const Window& window, const Shape& in);
// Its x is the output of a relu that follows a bias (null: none), and backward goes on behind all three: dx is the
// gradient of what the relu was given, and the bias' gradient gets the sum of dx over all positions, added, or in its
// place where it counts as zero. backward reads dy only: a maximum is positive exactly where the pixel it came from is,
// and no other maximum passes its gradient. The order of the sum depends on the extents and the type only.
std::unique_ptr<Op> bind_relu_max_pool(Cuda, const Window& window, const Shape& in, Param* bias);
std::unique_ptr<Op> bind_avg_pool(Cpu, const Window& window, const Shape& in);
std::unique_ptr<Op> bind_avg_pool(Cuda, const Window& window, const Shape& in);
// The same for a relu before it as bind_relu_max_pool(); backward reads x as well.
std::unique_ptr<Op> bind_relu_avg_pool(Cuda, const Window& window, const Shape& in, Param* bias);
std::unique_ptr<Op> bind_global_avg_pool(Cpu, const Shape& in);
std::unique_ptr<Op> bind_global_avg_pool(Cuda, const Shape& in);

}  // namespace owt

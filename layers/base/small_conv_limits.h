// Which convolutions our own kernels support on a GPU (small_conv.h), for code without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "layers/base/geometry.h"
#include "src/core/tensor.h"

namespace owt {

constexpr int kMostSmallChannels = 64;

// The channels of a pixel in shared memory: `channels`, and zeros.
constexpr int64_t small_conv_depth(int64_t channels) {
  return channels <= 4 ? 4 : channels <= 8 ? 8 : (channels + 15) / 16 * 16;
}

// Whether the kernels support a convolution whose weights and tiles fit into shared memory.
inline bool is_small_conv(const ConvGeometry& g, DType dtype) {
  const int64_t pixels = std::max(g.in_h * g.in_w, g.out_h * g.out_w);
  return dtype == DType::kBF16 && g.groups == 1 && g.stride_h == 1 && g.stride_w == 1 && !g.dilated() &&
         std::max(g.in_c, g.out_c) <= kMostSmallChannels &&
         pixels * kMostSmallChannels <= std::numeric_limits<int>::max();
}

}  // namespace owt

// Convolutions of few channels in bf16 by a kernel of our own on tensor cores. For .cu files.
//
// A block of threads keeps all weights in shared memory and takes some rows of an image at a time. Requires stride 1,
// one group, at most 64 channels of x and of y, and shared memory for the weights. The order of each sum depends only
// on the kernel and the channels.
#pragma once

#include <cstdint>
#include <optional>

#include "layers/base/geometry.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

// A convolution x -> y, as the kernel sees it. The weights in memory are [weight_outs, kernel_h, kernel_w, weight_ins].
struct SmallConvShape {
  int in_h, in_w, in_c;     // x: [rows, in_h, in_w, in_c]
  int out_h, out_w, out_c;  // y: [rows, out_h, out_w, out_c]
  int kernel_h, kernel_w, top, left;
  int weight_outs, weight_ins;
  // For the data gradient of a convolution, where x is dy and y is dx: the weights are transposed, and their windows
  // reversed.
  bool transposed;
  int depth;             // channels of a pixel in shared memory: the channels of x, then zeros
  int pixel;             // elements from one pixel to the next in shared memory
  int steps;             // products of 16 terms in a sum
  int tile_rows, tiles;  // rows of y that a block takes at a time, and how often that is in an image
};

class SmallConv {
 public:
  // For `rows` images on the calling host thread's GPU; none if the kernel does not support the convolution.
  // x_channels: of x in memory; those after geometry.in_c are zeros.
  static std::optional<SmallConv> forward(const ConvGeometry& geometry, int64_t x_channels, int64_t rows, DType dtype);
  static std::optional<SmallConv> data_gradient(const ConvGeometry& geometry, int64_t rows, DType dtype);

  // Queues y = convolution + bias, then relu if wanted; NaN stays NaN. weights: bf16, in the layer's order. bias may
  // be null. x, weights and y are aligned to 16 bytes.
  void queue(const void* x, const void* weights, const float* bias, bool relu, void* y, const Stream& stream) const;

 private:
  SmallConv(const SmallConvShape& shape, int64_t rows) : shape_(shape), rows_(rows) {}
  static std::optional<SmallConv> fitted(SmallConvShape shape, int64_t rows, const ConvGeometry& geometry, DType dtype);
  void choose_parts();
  int64_t shared_bytes() const;

  SmallConvShape shape_;
  int64_t rows_;
  int pixels_ = 1, channels_ = 2;  // a warp computes 16 * pixels_ pixels and 8 * channels_ channels at a time
  int64_t blocks_ = 0;             // the GPU runs as many at once
};

}  // namespace owt

// Packs the images and weights of a convolution with few input channels into more channels, which tensor cores need.
// This file computes where each element goes. For .cu files; the functions also run on the host.
//
// The pixels of each block of block_h x block_w become the channels of one pixel, and zeros fill the channels up to a
// multiple of 4. With blocks as large as the stride, a convolution of stride 4 and kernel 11 over 3 channels becomes
// one of stride 1 and kernel 3 over 48 channels. The zeros around the image then are part of the packed image. Blocks
// of one pixel only add channels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "layers/base/geometry.h"
#include "src/core/image_layout.h"

namespace owt {

class ChannelPacking {
 public:
  // The source of a packed channel: a pixel of the block and its channel; channel < 0: a zero for padding.
  struct Source {
    int row, column, channel;
  };

  // For a convolution without groups; blocks larger than one pixel must be as large as the stride.
  ChannelPacking(const ConvGeometry& geometry, int64_t block_h, int64_t block_w, int64_t multiple)
      : block_h_(static_cast<int>(block_h)),
        block_w_(static_cast<int>(block_w)),
        channels_(static_cast<int>(geometry.in_c)),
        plain_(geometry),
        packed_(packed_geometry(geometry, block_h, block_w, multiple)) {
    if (block_h * block_w == 1) return;
    shift_h_ = static_cast<int>(geometry.top);
    shift_w_ = static_cast<int>(geometry.left);
  }

  __host__ __device__ const ConvGeometry& packed() const { return packed_; }

  __host__ __device__ Source source(int packed_channel) const {
    const int pixel = packed_channel / channels_;
    if (pixel >= block_h_ * block_w_) return {0, 0, -1};
    return {pixel / block_w_, pixel % block_w_, packed_channel % channels_};
  }

  // The memory layout of the packed images.
  ImageLayout layout() const {
    const auto number = [](int64_t value) { return static_cast<int>(value); };
    return {.in_h = number(plain_.in_h),
            .in_w = number(plain_.in_w),
            .in_c = channels_,
            .block_h = block_h_,
            .block_w = block_w_,
            .top = shift_h_,
            .left = shift_w_,
            .height = number(packed_.in_h),
            .width = number(packed_.in_w),
            .channels = number(packed_.in_c)};
  }

  // The index of the weight, in [out, kernel_h, kernel_w, in_c], at this place of the packed weights; -1: a zero.
  __host__ __device__ int64_t weight_source(int64_t packed_weight) const {
    const Source at = source(static_cast<int>(packed_weight % packed_.in_c));
    const int64_t tap = packed_weight / packed_.in_c;
    const int64_t v = tap % packed_.kernel_w * block_w_ + at.column;
    const int64_t u = tap / packed_.kernel_w % packed_.kernel_h * block_h_ + at.row;
    const int64_t out = tap / (packed_.kernel_w * packed_.kernel_h);
    if (at.channel < 0 || u >= plain_.kernel_h || v >= plain_.kernel_w) return -1;
    return ((out * plain_.kernel_h + u) * plain_.kernel_w + v) * channels_ + at.channel;
  }

  // The place of a weight in the packed weights.
  __host__ __device__ int64_t weight_place(int64_t weight) const {
    const int64_t c = weight % channels_, tap = weight / channels_;
    const int64_t v = tap % plain_.kernel_w, u = tap / plain_.kernel_w % plain_.kernel_h;
    const int64_t out = tap / (plain_.kernel_w * plain_.kernel_h);
    const int64_t channel = (u % block_h_ * block_w_ + v % block_w_) * channels_ + c;
    return ((out * packed_.kernel_h + u / block_h_) * packed_.kernel_w + v / block_w_) * packed_.in_c + channel;
  }

 private:
  int block_h_, block_w_, channels_;
  int shift_h_ = 0, shift_w_ = 0;  // zeros above and left of the image, which are part of the packed image
  ConvGeometry plain_, packed_;
};

// Queue the packing on the stream. x: images, f32 or bf16; all other arguments of a call have the same type.
void queue_pack_images(const ImageLayout& layout, const Tensor& x, void* packed, const Stream& stream);
void queue_pack_weights(const ChannelPacking& packing, DType dtype, const void* weights, void* packed,
                        const Stream& stream);

}  // namespace owt

// The layout of a batch of images in which the pixels of a block are the channels of one pixel (space to depth). On a
// GPU a first convolution with few input channels runs fastest in this layout; see layers/gpu/space_to_depth.h.
//
// The packed images are [N, height, width, channels], the plain images [N, in_h, in_w, in_c]. Packed pixel (h, w) holds
// block_h x block_w plain pixels, row by row, starting at row h * block_h - top and column w * block_w - left. Pixels
// outside the image are zeros; further zeros fill the pixel up to `channels`. Each row of a block is `run()` contiguous
// elements in both the plain and the packed images.
#pragma once

#include <cstdint>

#include "src/core/tensor.h"

namespace owt {

struct ImageLayout {
  int in_h = 0, in_w = 0, in_c = 0;
  int block_h = 1, block_w = 1;
  int top = 0, left = 0;  // rows and columns of zeros before the first row and column
  int height = 0, width = 0, channels = 0;

  // Plain images of H x W x C, in which `together` pixels of a row, a divisor of W, form one pixel.
  static ImageLayout plain(const Shape& image, int together = 1) {
    const auto number = [](int64_t value) { return static_cast<int>(value); };
    const int height = number(image[0]), width = number(image[1]), channels = number(image[2]);
    return {.in_h = height,
            .in_w = width,
            .in_c = channels,
            .block_w = together,
            .height = height,
            .width = width / together,
            .channels = together * channels};
  }

  constexpr int run() const { return block_w * in_c; }

  // The element of a plain image that is in channel c of packed pixel (h, w); -1 for a zero.
  constexpr int64_t source(int h, int w, int c) const {
    const int pixel = c / in_c, row = h * block_h - top + pixel / block_w,
              column = w * block_w - left + pixel % block_w;
    const bool inside = pixel < block_h * block_w && row >= 0 && row < in_h && column >= 0 && column < in_w;
    return inside ? (int64_t{row} * in_w + column) * in_c + c % in_c : -1;
  }

  Shape batch_of(int64_t images) const { return {images, height, width, channels}; }
  bool operator==(const ImageLayout& other) const = default;
};

// Plain f32 images on the CPU, converted to this layout by the calling rank's team of threads.
Tensor laid_out(const Tensor& images, const ImageLayout& layout);

}  // namespace owt

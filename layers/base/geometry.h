// The geometry of layers that slide windows over images.
#pragma once

#include <cstdint>

namespace owt {

// Square pooling windows (pool.h).
struct Window {
  int64_t kernel = 1, stride = 1, pad = 0;
  bool round_up = false;
  bool counts_pad = true;  // padding counts in a mean

  // Number of windows along an image extent; below 1 if none fits.
  int64_t count(int64_t extent) const;
};

// The geometry of a convolution, without the batch size.
struct ConvGeometry {
  int64_t in_h = 0, in_w = 0, in_c = 0;
  int64_t out_h = 0, out_w = 0, out_c = 0;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;  // rows and columns of zeros around the image
  int64_t groups = 1;
  int64_t dilation_h = 1, dilation_w = 1;  // distance of the pixels under neighbouring weights

  bool dilated() const { return dilation_h > 1 || dilation_w > 1; }
  double flops(int64_t rows) const;  // one pass; a multiply-add is 2
};

// The equivalent convolution (without groups) whose pixels are blocks of pixels of the plain one, with channels padded
// to a multiple. A block is as large as the stride, or one pixel.
ConvGeometry packed_geometry(const ConvGeometry& plain, int64_t block_h, int64_t block_w, int64_t multiple);

}  // namespace owt

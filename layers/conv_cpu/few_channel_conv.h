// CPU convolutions of images with few channels, as in the first layer of a net: forward, and the gradients of weights
// and bias. (The first layer needs no gradient of the images.)
//
// In NHWC the kernel_w * C values under one row of the kernel are contiguous: a run. So the products with weights are
// matrix products without a copy of the image in columns (im2col). Only the image with its surrounding zeros is copied,
// row by row.
//   forward:          row of y, out_w x out = sum over rows of the kernel of (out_w x run) * (run x out)
//   backward weights: row of the kernel, run x out = sum over rows of y of (run x out_w) * (out_w x out)
// Sums are f32. The zeros around an image are multiplied too, so an infinite weight makes NaN of them. y does not
// depend on the team size.
#pragma once

#include <memory>

#include "layers/conv_cpu/conv_pass.h"

namespace owt {

// Null for backward data, for groups, for more than four channels, and if the processor lacks the product instructions.
std::unique_ptr<ConvPass> make_few_channel_conv(const ConvShape& shape, PassKind kind);

}  // namespace owt

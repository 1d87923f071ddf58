// Convolutions of images with few channels, as the first layer of a net has them, on the CPU: forward and the gradients
// of weights and bias. (Nobody asks for the gradient of the images there.)
//
// In NHWC the kernel_w * C values that a row of a kernel meets lie side by side: a run. So the products with weights
// are those of matrices, without a copy of the image in columns (im2col); all that is copied, row by row, is the image
// with the zeros around it.
//   forward:          row of y, out_w x out = sum over rows of the kernel of (out_w x run) * (run x out)
//   backward weights: row of the kernel, run x out = sum over rows of y of (run x out_w) * (out_w x out)
// Sums are f32. The zeros around an image are factors as well: an infinite weight makes NaN of them. y is the same for
// every team.
#pragma once

#include <memory>

#include "layers/conv_pass.h"

namespace owt {

// Null for backward data, for groups, for more than four channels, and where the processor lacks the products.
std::unique_ptr<ConvPass> make_few_channel_conv(const ConvShape& shape, PassKind kind);

}  // namespace owt

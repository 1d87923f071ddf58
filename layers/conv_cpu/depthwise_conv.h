// Depthwise convolutions on the CPU: each channel is convolved with its own kernel (groups = in_c = out_c).
//   forward:           y[n,i,j,c] = bias[c] + sum over u,v of x[n,h,w,c] * weight[c,u,v],
//                      where h = i*stride - pad + u and w = j*stride - pad + v
//   backward data:    dx[n,h,w,c] = sum of dy[n,i,j,c] * weight[c,u,v] over all i,j,u,v with that h and w
//   backward weights:   dw[c,u,v] = sum of dy[n,i,j,c] * x[n,h,w,c] over n,i,j
//
// A pass has few products, so its speed depends on how fast factors are loaded. In NHWC a vector holds the same pixel
// of neighbouring channels. Each image vector that is loaded is used for several neighbouring columns.
//
// Sums are f32. With bf16 images the weights are rounded to bf16, as in every algorithm. Pixels outside the image are
// not multiplied, so an infinite weight makes no NaN of the zeros around the image. NaN in a channel stays in that
// channel. y and dx do not depend on the number of threads.
#pragma once

#include <memory>

#include "layers/conv_cpu/conv_pass.h"

namespace owt {

// Null unless every channel of y depends on exactly one channel of x, and every channel of x on one of y.
std::unique_ptr<ConvPass> make_depthwise_conv(const ConvShape& shape, PassKind kind);

}  // namespace owt

// Depthwise convolutions on the CPU: each channel is convolved with a kernel of its own (groups = in_c = out_c).
//   forward:           y[n,i,j,c] = bias[c] + sum over u,v of x[n,h,w,c] * weight[c,u,v],
//                      where h = i*stride - pad + u and w = j*stride - pad + v
//   backward data:    dx[n,h,w,c] = sum of dy[n,i,j,c] * weight[c,u,v] over all i,j,u,v with that h and w
//   backward weights:   dw[c,u,v] = sum of dy[n,i,j,c] * x[n,h,w,c] over n,i,j
//
// There are so few products that a pass is as fast as its factors come: in NHWC a vector has the same pixel of
// neighbouring channels, and each vector of an image that is read is a factor for all of several neighbouring columns.
//
// Sums are f32; with images of bf16 the weights are rounded to bf16, as factors are in every algorithm. A pixel outside
// the image is no factor: neither an infinite weight nor NaN comes out of the zeros around it, and NaN in a channel
// stays in that channel. y and dx are the same for every team.
#pragma once

#include <memory>

#include "layers/conv_pass.h"

namespace owt {

// Null where a channel of y is made of more than one of x, or one of x goes to more than one of y.
std::unique_ptr<ConvPass> make_depthwise_conv(const ConvShape& shape, PassKind kind);

}  // namespace owt

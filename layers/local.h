// A convolution with separate weights at every position. cuda-convnet calls it "local" and uses two in its net with
// 11 % error on CIFAR-10. Others call it untied or locally connected (Taigman et al. 2014, "DeepFace", L4 to L6).
//   y[n,p,o] = bias[o,p] + sum over u,v,c of x[n, i*stride - pad + u, j*stride - pad + v, c] * weight[o,p,(u,v,c)]
// where p = i * OW + j is the position of y. x is zero outside the image. The windows are defined as in layers/conv.h.
// Keys: out, kernel, stride (1), pad (0), round ("down" | "up") as in conv; init (xavier), lr and decay (multipliers
// for the weight), bias (true | false | a table of lr, decay and init (constant 0)).
// Parameters: `name.weight` [out, OH * OW, kh * kw * C], and `name.bias` [out, OH * OW]; files use the same order.
// There are OH * OW times as many as in a conv, and they fit images of one size only.
// With LayerSpec::part it computes only those channels of y and holds only those rows of the parameters, like a conv.
// In the front part the gradients are summed over the ranks; under mp the channels are split.
#pragma once

#include "layers/conv.h"

namespace owt {

std::unique_ptr<Layer> make_local(const LayerSpec& spec);

// The op for `rows` images. The parameters must outlive it; bias may be null.
std::unique_ptr<Op> bind_local(Cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);
std::unique_ptr<Op> bind_local(Cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);

}  // namespace owt

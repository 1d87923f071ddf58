// A convolution with weights of its own at every position: "local" in cuda-convnet, whose net with 11 % error on
// CIFAR-10 has two, and untied or locally connected elsewhere (Taigman et al. 2014, "DeepFace", layers L4 to L6).
//   y[n,p,o] = bias[o,p] + sum over u,v,c of x[n, i*stride - pad + u, j*stride - pad + v, c] * weight[o,p,(u,v,c)]
// p = i * OW + j being the position of y; zeros lie outside x, and the windows are those of layers/conv.h.
// Keys: out, kernel, stride (1), pad (0), round ("down" | "up") as conv has them; init (xavier), lr and decay
// (multipliers of the weight), bias (true | false | a table of lr, decay and init (constant 0)).
// Parameters: `name.weight` [out, OH * OW, kh * kw * C], and `name.bias` [out, OH * OW]; in files as in memory. There
// are as many as a conv's times the positions, and they fit images of one size only.
// With LayerSpec::part it computes those channels of y only and keeps those rows of the parameters, as a conv does:
// before the boundary the gradients are summed over the ranks, and under mp the channels are split.
#pragma once

#include "layers/conv.h"

namespace owt {

std::unique_ptr<Layer> make_local(const LayerSpec& spec);

// The op for `rows` images. The parameters must outlive it; bias may be null.
std::unique_ptr<Op> bind_local(Cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);
std::unique_ptr<Op> bind_local(Cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);

}  // namespace owt

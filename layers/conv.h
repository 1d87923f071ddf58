// Two-dimensional convolution.
//   x: N x H x W x C  ->  y: N x OH x OW x out
//   y[n,i,j,o] = bias[o] + sum over u,v,c of weight[o,u,v,c] * x[n, i*stride - pad + u*dilation,
//                                                               j*stride - pad + v*dilation, c]
// with zeros outside x. With groups > 1 output o sees only the C / groups channels of its own group.
//   OH = (H + 2*pad - (kernel - 1)*dilation - 1) / stride + 1, rounded down, or up with round = "up": more zeros then
//   follow at the bottom and right edges, so that the last window is whole (the geometry of cuda-convnet).
// Keys: out, kernel (k or [kh, kw]), stride (1), pad (0) and dilation (1) (each one number or [h, w]), groups (1),
//   round ("down" | "up"), init (xavier), lr and decay (multipliers for the weight), bias (true | false | a table of
//   lr, decay and init (constant 0)).
// With LayerSpec::part it computes only those channels of y and holds only those rows of the parameters; it requires
// groups = 1.
// Parameters: `name.weight`, in memory [out, kh, kw, C / groups], in files [out, C / groups, kh, kw]; `name.bias`
// [out].
// Errors: groups does not divide the channels or outputs; the kernel exceeds the padded image; the input is no image.
// Source: Krizhevsky et al. 2012, section 3; groups: section 3.2. dilation: Yu and Koltun 2016 (arXiv:1511.07122).
#pragma once

#include "layers/base/geometry.h"
#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_conv(const LayerSpec& spec);

// The geometry of a conv for a batch of shape `in`; none for any other layer.
std::optional<ConvGeometry> conv_geometry(const Layer& layer, const Shape& in);

// The op for `rows` images. The parameters must outlive it; bias may be null.
std::unique_ptr<Op> bind_conv(Cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);
std::unique_ptr<Op> bind_conv(Cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);
// y = relu(convolution); NaN stays NaN. Backward takes the relu's y and dy, and overwrites dy. Null on the CPU, which
// keeps two layers because oneDNN's fused relu turns NaN into 0.
std::unique_ptr<Op> bind_conv_relu(Cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);
std::unique_ptr<Op> bind_conv_relu(Cuda, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias);
// y = max_pool(relu(convolution)), computed as relu(max_pool(convolution)), which is equal. Backward takes the last dy
// and does not read y, which a dropout may have overwritten in place. The input of the pool is not stored. Null on the
// CPU.
std::unique_ptr<Op> bind_conv_relu_max_pool(Cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias,
                                            const Window& window);
std::unique_ptr<Op> bind_conv_relu_max_pool(Cuda, const ConvGeometry& geometry, int64_t rows, Param& weight,
                                            Param* bias, const Window& window);
// y = avg_pool(relu(convolution)), likewise, but the input of the pool is stored for backward. Null on the CPU.
std::unique_ptr<Op> bind_conv_relu_avg_pool(Cpu, const ConvGeometry& geometry, int64_t rows, Param& weight, Param* bias,
                                            const Window& window);
std::unique_ptr<Op> bind_conv_relu_avg_pool(Cuda, const ConvGeometry& geometry, int64_t rows, Param& weight,
                                            Param* bias, const Window& window);

}  // namespace owt

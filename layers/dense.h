// Fully connected layer.
//   x: N x F, or N x H x W x C read as H*W*C values in memory order  ->  y: N x out
//   y[n,o] = bias[o] + sum over f of x[n,f] * weight[o,f]
// Keys: out, init (xavier), lr, decay (multipliers for the weight), bias (true | false | table of lr, decay, init).
// Parameters: `name.weight`, in memory [out, H, W, C] (after an image) or [out, F], in files [out, C*H*W];
//   `name.bias` [out].
// With LayerSpec::part it computes only those output features and holds only those rows of the parameters. The part may
// be empty: y then has no columns, and dx, which is summed over the parts, is zero.
// Source: Krizhevsky 2014 (arXiv:1404.5997), dense layers split over their outputs.
#pragma once

#include "layers/base/layer.h"
#include "layers/dropout.h"

namespace owt {

std::unique_ptr<Layer> make_dense(const LayerSpec& spec);

// The op for batches of `rows` rows. The parameters must outlive the op; bias may be null. weight.keeps_grad must not
// change.
std::unique_ptr<Op> bind_dense(Cpu, int64_t rows, Param& weight, Param* bias);
std::unique_ptr<Op> bind_dense(Cuda, int64_t rows, Param& weight, Param* bias);

// A dense layer with a relu, y = relu(x * weight' + bias), as one op of two layers; NaN stays NaN. With a dropout after
// the relu (null: none) it is an op of three layers. Backward takes the y and dy of the last layer, and overwrites dy.
// Null if the device is no faster with one op than with several.
std::unique_ptr<Op> bind_dense_relu(Cpu, int64_t rows, Param& weight, Param* bias, const DropoutSettings* dropout);
std::unique_ptr<Op> bind_dense_relu(Cuda, int64_t rows, Param& weight, Param* bias, const DropoutSettings* dropout);

}  // namespace owt

// Layer normalisation over the channels of every position of an image, or over the features of a row.
//   y[c] = weight[c] * (x[c] - mean) / sqrt(var + eps) + bias[c], mean and var (divided by C) over the C channels
// The result of a row depends on this row only.
// Parameters, [channels] each: weight (initially 1) and bias (0).
// Keys: eps (1e-5), weight and bias (tables: lr, decay, init).
// Source: Ba et al. 2016 (arXiv:1607.06450); over channels only: Liu et al. 2022 (arXiv:2201.03545).
#pragma once

#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_layer_norm(const LayerSpec& spec);

struct LayerNormParams {
  Param &weight, &bias;
};
// `in`: the batch. The parameters must outlive the op.
std::unique_ptr<Op> bind_layer_norm(Cpu, LayerNormParams params, double eps, const Shape& in);
std::unique_ptr<Op> bind_layer_norm(Cuda, LayerNormParams params, double eps, const Shape& in);

}  // namespace owt

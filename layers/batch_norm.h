// Batch normalisation (Ioffe and Szegedy 2015) per channel, or per column of N x F.
//   training:   y = weight * (x - mean) / sqrt(var + eps) + bias, mean and var over the positions of all rows
//   evaluation: the same with running_mean and running_var, and so does a frozen layer (ParamRole) in training
// The statistics are those of the batch the op is shown: one rank's rows of one round, not the whole step. A run with
// more ranks or smaller rounds therefore normalises over fewer rows and is not the same computation.
//
// Parameters, [channels] each: weight (from 1), bias (from 0), and the running averages running_mean (from 0)
// and running_var (from 1), role kAverage. backward adds this batch's mean, and its variance with the divisor
// n - 1 (1 where n is 1), times rows / Pass::step_rows to the averages' grad. Keys: eps (1e-5), momentum
// (0.1: the weight of the newest statistic), weight and bias (tables: lr, decay, init).
#pragma once

#include "layers/layer.h"

namespace owt {

struct BatchNormParams {
  Param &weight, &bias, &running_mean, &running_var;
};

std::unique_ptr<Layer> make_batch_norm(const LayerSpec& spec);
// The parameters must outlive the op.
std::unique_ptr<Op> bind_batch_norm(Cpu, BatchNormParams params, double eps, const Shape& in);
std::unique_ptr<Op> bind_batch_norm(Cuda, BatchNormParams params, double eps, const Shape& in);

}  // namespace owt

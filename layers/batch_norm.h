// Batch normalisation (Ioffe and Szegedy 2015) per channel, or per column of N x F.
//   training:   y = weight * (x - mean) / sqrt(var + eps) + bias, mean and var over the positions of a group of rows
//   evaluation: the same with running_mean and running_var; a frozen layer (ParamRole) does this in training too
// rows = n: a group is n consecutive rows of the step; core/row_groups.h handles the remainder. The plan deals whole
//   groups to ranks and rounds. So the result is the same for any number of ranks, and no bytes are sent. Statistics
//   over few rows correspond to workers with 32 images each (Goyal et al. 2017, "Accurate, Large Minibatch SGD",
//   section 2.3: keep n for any number of workers) and to ghost batches (Hoffer et al. 2017, "Train longer, generalize
//   better").
// rows = 0: the statistics cover the batch of the op: one rank's rows of one round, not the whole step. A run with more
//   ranks or smaller rounds normalises over fewer rows and gives a different result.
// rows = "step": the statistics cover all rows of the step. The ranks sum x and x^2 in f64, and in backward dy and
//   dy * (x - mean). The result is the same for any number of ranks. The ranks wait for each other twice in every such
//   layer ("synchronised" batch normalisation: Peng et al. 2018, "MegDet", section 3.3).
//
// Parameters, [channels] each: weight (initially 1), bias (0), and the running averages running_mean (0) and
//   running_var (1) with role kAverage. Backward adds each group's mean and variance (divisor n - 1, or 1 if n is 1) to
//   the grad of the averages, weighted by the op's rows in the group / Pass::step_rows.
// Keys: rows (0), eps (1e-5), momentum (0.1: the weight of the latest statistic), weight and bias (tables: lr, decay,
// init).
#pragma once

#include "layers/base/layer.h"

namespace owt {

struct BatchNormParams {
  Param &weight, &bias, &running_mean, &running_var;
};

constexpr int64_t kRowsOfOp = 0, kRowsOfStep = -1;

struct BatchNormSettings {
  double eps = 1e-5;
  int64_t rows = kRowsOfOp;  // rows of a group; kRowsOfOp: all rows of the op; kRowsOfStep: all of the step
  bool relu = false;         // the op includes a relu that follows, and gives the same bits as the two layers
};

std::unique_ptr<Layer> make_batch_norm(const LayerSpec& spec);
// The parameters must outlive the op.
std::unique_ptr<Op> bind_batch_norm(Cpu, BatchNormParams params, const BatchNormSettings& settings, const Shape& in);
std::unique_ptr<Op> bind_batch_norm(Cuda, BatchNormParams params, const BatchNormSettings& settings, const Shape& in);

}  // namespace owt

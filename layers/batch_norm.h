// Batch normalisation (Ioffe and Szegedy 2015) per channel, or per column of N x F.
//   training:   y = weight * (x - mean) / sqrt(var + eps) + bias, mean and var over the positions of a group of rows
//   evaluation: the same with running_mean and running_var, and so does a frozen layer (ParamRole) in training
// With rows = n a group is n rows, fixed ones of the step (core/row_groups.h): the plan deals whole groups to ranks and
// rounds, so that every number of ranks computes the same, and no bytes travel. Statistics of so few rows are those of
// workers with 32 images each (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.3: n is to stay the same
// for any number of workers) and of the ghost batches of Hoffer et al. 2017 ("Train longer, generalize better").
// With rows = 0 the statistics are those of the batch the op is shown: one rank's rows of one round, not the whole
// step. A run with more ranks or smaller rounds therefore normalises over fewer rows and is not the same computation.
// With rows = "step" they are those of all rows of the step, wherever these are: every rank adds its sums of x and of
// x^2 to the others', in f64, and in backward those of dy and of dy * (x - mean). Every number of ranks computes the
// same; the ranks wait for each other twice in every such layer ("synchronised" batch normalisation: Peng et al. 2018,
// "MegDet", section 3.3).
//
// Parameters, [channels] each: weight (from 1), bias (from 0), and the running averages running_mean (from 0)
// and running_var (from 1), role kAverage. backward adds each group's mean, and its variance with the divisor
// n - 1 (1 where n is 1), times the op's rows of it / Pass::step_rows to the averages' grad.
// Keys: rows (0), eps (1e-5), momentum (0.1: the weight of the newest statistic), weight and bias (tables: lr, decay,
// init).
#pragma once

#include "layers/layer.h"

namespace owt {

struct BatchNormParams {
  Param &weight, &bias, &running_mean, &running_var;
};

constexpr int64_t kRowsOfOp = 0, kRowsOfStep = -1;

std::unique_ptr<Layer> make_batch_norm(const LayerSpec& spec);
// rows: of a group; kRowsOfOp: all of `in`; kRowsOfStep: all of the step. The parameters must outlive the op.
std::unique_ptr<Op> bind_batch_norm(Cpu, BatchNormParams params, double eps, int64_t rows, const Shape& in);
std::unique_ptr<Op> bind_batch_norm(Cuda, BatchNormParams params, double eps, int64_t rows, const Shape& in);

}  // namespace owt

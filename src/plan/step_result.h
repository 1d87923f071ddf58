// What the ranks exchange at the end of every step.
#pragma once

#include <array>
#include <cstdint>

#include "layers/loss/softmax_loss.h"

namespace owt {

// The f64 values that are summed over the ranks: the sums of the loss, and the number of ranks that were asked to stop.
// If the loss samples classes, one more follows: the number of classes that took part.
enum StepSum : int { kStopSum = kLossSums, kStepSums };

using ResultSums = std::array<double, kStepSums>;

constexpr int64_t kStepResultBytes = kStepSums * 8;
// A worker that pushes to servers sends these in place of the result: the sums, and what PushHeader adds to them.
constexpr int64_t kPushHeaderBytes = kStepResultBytes + 4 * 8;

struct StepResult {
  LossSums sums;      // over all rows of the step
  bool stop = false;  // a rank was asked to stop
  int64_t sampled_classes = 0;
  // If updates wait for norms (PlanRequest::norm_sums): over all ranks if all of them know it.
  double gradient_norm = 0;
};

// The result from the sums over all ranks, in which every row of the step is counted by one rank only. sampled_classes:
// also summed.
StepResult step_result(const double* sums, double sampled_classes = 0);

}  // namespace owt

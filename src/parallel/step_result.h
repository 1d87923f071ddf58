// What the ranks tell each other at the end of every step.
#pragma once

#include <cstdint>

#include "layers/softmax_loss.h"

namespace owt {

// The f64 values that are summed over the ranks: those of the loss, and how many ranks were asked to stop.
enum StepSum : int { kStopSum = kLossSums, kStepSums };

constexpr int64_t kStepResultBytes = kStepSums * 8;

struct StepResult {
  LossSums sums;      // over all rows of the step
  bool stop = false;  // a rank was asked to stop
  double gradient_norm =
      0;  // where updates wait for it (PlanRequest::norm_sums); over all ranks where they all know it
};

// What the sums over all ranks say, which count every row of the step on one rank only.
StepResult step_result(const double* sums);

}  // namespace owt

#include "src/plan/step_result.h"

namespace owt {

StepResult step_result(const double* sums) {
  StepResult result;
  result.sums.loss = sums[kLossSum];
  result.sums.top1 = static_cast<int64_t>(sums[kTop1Sum]);
  result.sums.top5 = static_cast<int64_t>(sums[kTop5Sum]);
  result.sums.rows = static_cast<int64_t>(sums[kRowSum]);
  result.stop = sums[kStopSum] > 0;
  return result;
}

}  // namespace owt

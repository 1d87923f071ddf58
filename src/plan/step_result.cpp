#include "src/plan/step_result.h"

#include <cmath>

namespace owt {

StepResult step_result(const double* sums, double sampled_classes) {
  StepResult result;
  result.sums.loss = sums[kLossSum];
  result.sums.top1 = static_cast<int64_t>(sums[kTop1Sum]);
  result.sums.top5 = static_cast<int64_t>(sums[kTop5Sum]);
  result.sums.rows = static_cast<int64_t>(sums[kRowSum]);
  result.stop = sums[kStopSum] > 0;
  // NaN: classes of the sample were left out (class_sample.h), so the loss is not the loss of the sample.
  if (std::isnan(sampled_classes))
    result.sums.loss = sampled_classes;
  else
    result.sampled_classes = static_cast<int64_t>(sampled_classes);
  return result;
}

}  // namespace owt

#include "layers/softmax_rows.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"

namespace owt {

SmoothTarget target_of(const LossSettings& settings, Mode mode, int classes) {
  return {mode == Mode::kTrain ? settings.label_smoothing : 0, classes};
}

void check_loss(const LossSettings& settings, int64_t classes) {
  OWT_CHECK(classes >= 1, "a loss over ", classes, " classes");
  OWT_CHECK(settings.label_smoothing >= 0 && settings.label_smoothing < 1, "label_smoothing is ",
            settings.label_smoothing, ", wanted 0 to less than 1");
}

void check_labels(const int32_t* labels, int64_t rows, int64_t classes) {
  for (int64_t row = 0; row < rows; ++row)
    if (labels[row] < 0 || labels[row] >= classes)
      fail("the label of row ", row, " is ", labels[row], ", wanted 0 to ", classes - 1,
           "; does the model's 'classes' match the data?");
}

void add_rows(Cpu, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream&) {
  double* const all = sums.data<double>();
  all[kRowSum] += static_cast<double>(results.size());
  for (const RowResult& result : results) {
    all[kLossSum] += result.loss;
    all[kTop1Sum] += result.top1;
    all[kTop5Sum] += result.top5;
  }
  if (then.first.defined() && !std::isfinite(all[kLossSum])) {
    int32_t& first = *then.first.data<int32_t>();
    first = first_bad_layer(then.watched, first);
  }
  if (then.sums_for_host.defined()) std::copy_n(all, kLossSums, then.sums_for_host.data<double>());
  if (then.first_for_host.defined()) *then.first_for_host.data<int32_t>() = *then.first.data<int32_t>();
}

}  // namespace owt

#include "layers/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "layers/softmax_rows.h"
#include "src/core/check.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kSoftmaxGrain = 1 << 11;  // exponentials per thread that are worth waking it for

RowResult run_row(const float* logits, const SmoothTarget& target, int label, const RowGradient& gradient,
                  float* dlogits) {
  const int classes = target.classes;
  const float largest = *std::max_element(logits, logits + classes), own = logits[label];
  double sum = 0, below = 0;  // below: of the logits, less the largest
  int before = 0;             // classes that rank before the label
  for (int c = 0; c < classes; ++c) {
    const float exponential = std::exp(logits[c] - largest);
    if (dlogits) dlogits[c] = exponential;
    sum += static_cast<double>(exponential);
    below += static_cast<double>(logits[c]) - static_cast<double>(largest);
    before += ranks_before(logits[c], own, c < label);
  }
  if (dlogits) {
    const float scale = gradient.scale(sum);
    const float of_label = gradient.at(dlogits[label], scale, true);
    for (int c = 0; c < classes; ++c) dlogits[c] = gradient.at(dlogits[c], scale, false);
    dlogits[label] = of_label;
  }
  return row_result(std::log(sum), static_cast<double>(own) - static_cast<double>(largest), below / classes, before,
                    target);
}

class CpuLoss : public SoftmaxLoss {
 public:
  CpuLoss(int classes, const LossSettings& settings) : classes_(classes), settings_(settings) {
    check_loss(settings, classes);
  }

  void run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits, Tensor& sums,
           const LossFollowUp& then) override {
    const int64_t rows = logits.shape().rows();
    OWT_CHECK_EQ(logits.shape().row_elements(), int64_t{classes_}, "one logit per class");
    OWT_CHECK_EQ(labels.elements(), rows, "one label per row");
    const float* x = logits.data();
    const int32_t* label = labels.data<int32_t>();
    check_labels(label, rows, classes_);
    float* dx = dlogits ? dlogits->data() : nullptr;
    const SmoothTarget target = target_of(settings_, pass.mode, classes_);
    const RowGradient gradient(pass.step_rows, target);

    results_.resize(static_cast<size_t>(rows));
    parallel_for(rows, std::max<int64_t>(1, kSoftmaxGrain / classes_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row * classes_;
        results_[static_cast<size_t>(row)] =
            run_row(x + first, target, label[row], gradient, dx ? dx + first : nullptr);
      }
    });
    if (rows > 0) add_rows(Cpu{}, results_, sums, then, *pass.stream);
  }

 private:
  int classes_;
  LossSettings settings_;
  std::vector<RowResult> results_;
};

}  // namespace

std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cpu, int classes, int64_t, const LossSettings& settings) {
  return std::make_unique<CpuLoss>(classes, settings);
}

std::unique_ptr<SoftmaxLoss> make_softmax_loss(const Compute& on, int classes, int64_t rows,
                                               const LossSettings& settings) {
  return dispatch(on, [&](auto tag) { return bind_softmax_loss(tag, classes, rows, settings); });
}

}  // namespace owt

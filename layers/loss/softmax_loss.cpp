#include "layers/loss/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "layers/loss/softmax_rows.h"
#include "layers/loss/softmax_sweeps.h"
#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kSoftmaxGrain = 1 << 11;  // fewest exponentials per thread for which a thread is worth waking

// dlogits may be null.
template <class T>
RowResult run_row(const RowLogits<T>& logits, const SmoothTarget& target, const RowGradient& gradient, T* dlogits) {
  const float largest = largest_of(logits), own = logits[logits.label.first], second = logits[logits.label.second];
  const double labelled = logits.label.mean(static_cast<double>(own), static_cast<double>(second));
  const auto [sum, below] = row_exponentials(logits, largest, kept_in(dlogits));
  if (dlogits) write_row_gradient(logits, largest, 1, sum, gradient, dlogits);
  return row_result(std::log(sum), labelled - static_cast<double>(largest), below / target.classes,
                    ranked_before(logits), target);
}

// Like run_row() for logistic units; dlogits may be null. targets: null if their share is 0.
template <class T>
RowResult run_logistic_row(const RowLogits<T>& logits, const int32_t* targets, const LogisticTarget& target,
                           T* dlogits) {
  double loss = 0;
  for (int c = 0; c < logits.count; ++c) {
    const float logit = logits[c], share = logits.label.share_of(c);
    const UnitResult unit =
        targets ? target.compare(logit, share, target_of(targets[c])) : target.compare(logit, share);
    loss += unit.loss;
    if (dlogits) dlogits[c] = unit.gradient;
  }
  return counted(loss, ranked_before(logits));
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
    check_label_shape(labels, rows, settings_);
    check_labels(labels.data<int32_t>(), rows, classes_, settings_);
    results_.resize(static_cast<size_t>(rows));
    with_cpu_element(logits.dtype(), [&](auto element) {
      using T = decltype(element);
      run_rows(pass, rows, logits.data<T>(), labels.data<int32_t>(), dlogits ? dlogits->data<T>() : nullptr);
    });
    if (rows > 0) add_rows(Cpu{}, results_, sums, then, *pass.stream);
  }

 private:
  template <class T>
  void run_rows(const Pass& pass, int64_t rows, const T* x, const int32_t* labels, T* dx) {
    const SmoothTarget target = target_of(settings_, pass.mode, classes_);
    const RowMargin margin = margin_of(settings_, pass.mode, DTypeOf<T>::value);
    const RowGradient gradient(pass.step_rows, target, margin.scale);
    const TargetShare share = share_of_targets(settings_, pass.mode);
    const LogisticTarget logistic(target, pass.step_rows, share);
    const LabelRows label_rows = settings_.label_rows();
    parallel_for(rows, std::max<int64_t>(1, kSoftmaxGrain / classes_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row * classes_;
        const RowLogits<T> logits(x + first, classes_, label_rows.label(labels, row), margin);
        const int32_t* const targets = share.weight > 0 ? label_rows.targets_of(labels, row) : nullptr;
        T* const to = dx ? dx + first : nullptr;
        RowResult& result = results_[static_cast<size_t>(row)];
        if (settings_.type == LossType::kLogistic) {
          result = run_logistic_row(logits, targets, logistic, to);
        } else {
          result = run_row(logits, target, gradient, to);
          if (targets) result = add_targets(logits, targets, share, gradient.weight, result, to);
        }
      }
    });
  }

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

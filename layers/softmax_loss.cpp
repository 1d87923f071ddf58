#include "layers/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/core/check.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 11;  // exponentials per thread that are worth waking it for

void require_labels_in_range(const int32_t* labels, int64_t rows, int classes) {
  for (int64_t row = 0; row < rows; ++row)
    if (labels[row] < 0 || labels[row] >= classes)
      fail("the label of row ", row, " is ", labels[row], ", wanted 0 to ", classes - 1,
           "; does the model's 'classes' match the data?");
}

struct RowResult {
  double loss;
  bool top1, top5;
};

RowResult run_row(const float* logits, int classes, int label, float weight, float* dlogits) {
  const float largest = *std::max_element(logits, logits + classes), own = logits[label];
  double sum = 0;
  int before = 0;  // classes that rank before the label
  for (int c = 0; c < classes; ++c) {
    const float exponential = std::exp(logits[c] - largest);
    if (dlogits) dlogits[c] = exponential;
    sum += static_cast<double>(exponential);
    before += logits[c] > own || (logits[c] == own && c < label);
  }
  if (dlogits) {
    const float scale = static_cast<float>(static_cast<double>(weight) / sum);
    for (int c = 0; c < classes; ++c) dlogits[c] *= scale;
    dlogits[label] -= weight;
  }
  const double loss = std::log(sum) - (static_cast<double>(own) - static_cast<double>(largest));
  const bool valid = !std::isnan(loss);
  return {loss, valid && before < 1, valid && before < 5};
}

class CpuLoss : public SoftmaxLoss {
 public:
  explicit CpuLoss(int classes) : classes_(classes) { OWT_CHECK(classes >= 1, "a loss over ", classes, " classes"); }

  void run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits, Tensor& sums) override {
    const int64_t rows = logits.shape().rows();
    OWT_CHECK_EQ(logits.shape().row_elements(), int64_t{classes_}, "one logit per class");
    OWT_CHECK_EQ(labels.elements(), rows, "one label per row");
    const float* x = logits.data();
    const int32_t* label = labels.data<int32_t>();
    require_labels_in_range(label, rows, classes_);
    float* dx = dlogits ? dlogits->data() : nullptr;
    const float weight = 1.0f / static_cast<float>(pass.step_rows);

    results_.resize(static_cast<size_t>(rows));
    parallel_for(rows, std::max<int64_t>(1, kGrain / classes_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row * classes_;
        results_[static_cast<size_t>(row)] =
            run_row(x + first, classes_, label[row], weight, dx ? dx + first : nullptr);
      }
    });

    // In row order, whatever the threads did.
    double* sum = sums.data<double>();
    sum[kRowSum] += static_cast<double>(rows);
    for (const RowResult& result : results_) {
      sum[kLossSum] += result.loss;
      sum[kTop1Sum] += result.top1;
      sum[kTop5Sum] += result.top5;
    }
  }

 private:
  int classes_;
  std::vector<RowResult> results_;
};

}  // namespace

std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cpu, int classes, int64_t) { return std::make_unique<CpuLoss>(classes); }

std::unique_ptr<SoftmaxLoss> make_softmax_loss(const Compute& on, int classes, int64_t rows) {
  return dispatch(on, [&](auto tag) { return bind_softmax_loss(tag, classes, rows); });
}

}  // namespace owt

#include "layers/loss/softmax_loss.h"

#include <span>

#include "layers/gpu/last_block.cuh"
#include "layers/loss/softmax_rows.cuh"
#include "src/core/elements.cuh"

namespace owt {
namespace {

struct AllRows {
  RowResult* results;
  unsigned* arrived;
  LossFinish finish;

  // Called by all threads of a block, after it has written the result of its row.
  __device__ void finish_in_last_block() const {
    if (arrives_last(arrived, gridDim.x)) finish();
  }
};

// A block per row. The row is read from memory once and from the cache twice.
template <class T>
__global__ void softmax_rows(const T* logits, const int32_t* labels, LabelRows label_rows, SmoothTarget target,
                             RowMargin margin, TargetShare share, RowGradient gradient, T* dlogits, AllRows all) {
  wait_for_previous_kernel();
  const int classes = target.classes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * classes;
  const T* x = logits + first;
  const RowLabel label = label_rows.label(labels, blockIdx.x);
  const int32_t* targets = label_rows.targets_of(labels, blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const bool known = label.known(classes);
  const LabelLogit labels_own = margin.of_label(known ? to_float(x[label.first]) : kNaN);
  const float own = labels_own.logit;
  const auto logit_of = [=](int c) { return c == label.first ? own : margin.scale * to_float(x[c]); };
  const double labelled = known && label_rows.mixed
                              ? label.mean(static_cast<double>(own), static_cast<double>(to_float(x[label.second])))
                              : static_cast<double>(own);

  float largest = -kInfinity;
  int before = 0;  // classes that rank before the label
  for (int c = thread; c < classes; c += threads) {
    const float logit = logit_of(c);
    largest = fmaxf(largest, logit);
    before += ranks_before(logit, own, c < label.first);
  }
  largest = reduce_block(largest, Larger{});
  before = reduce_block(before, Sum{});

  // NaN logits are not the largest; they appear in the sum.
  double sum = 0, below = 0;  // below: sum of logits minus the largest
  for (int c = thread; c < classes; c += threads) {
    const float logit = logit_of(c);
    sum += static_cast<double>(expf(logit - largest));
    below += static_cast<double>(logit) - static_cast<double>(largest);
  }
  sum = reduce_block(sum, Sum{});
  if (target.smoothing > 0) below = reduce_block(below, Sum{});

  const float cooling = 1 / static_cast<float>(share.temperature);
  const auto cooled = [=](int c) { return expf((to_float(x[c]) - largest) * cooling); };
  TargetSums of_targets;
  if (share.weight > 0) {
    for (int c = thread; c < classes; c += threads)
      of_targets.add(cooled(c), to_float(x[c]) - largest, target_of(targets[c]), share);
    of_targets.exponentials = reduce_block(of_targets.exponentials, Sum{});
    of_targets.targets = reduce_block(of_targets.targets, Sum{});
    of_targets.times_below = reduce_block(of_targets.times_below, Sum{});
  }

  if (dlogits) {
    const float scale = known ? gradient.scale(sum) : kNaN;
    for (int c = thread; c < classes; c += threads) {
      const float exponential = expf(logit_of(c) - largest);
      float slope = label.has(c) ? labels_own.slope * gradient.at_label(exponential, scale, label.share_of(c))
                                 : gradient.at(exponential, scale);
      if (share.weight > 0)
        slope = static_cast<float>(share.of_label() * static_cast<double>(slope) +
                                   share.of_gradient() * static_cast<double>(gradient.weight) *
                                       of_targets.gradient(cooled(c), target_of(targets[c])));
      dlogits[first + c] = from_float<T>(slope);
    }
  }
  if (thread == 0) {
    const RowResult result =
        row_result(log(sum), labelled - static_cast<double>(largest), below / classes, before, target);
    all.results[blockIdx.x] =
        share.weight > 0 ? with_targets(result, of_targets, log(of_targets.exponentials), share) : result;
  }
  all.finish_in_last_block();
}

// Like softmax_rows for logistic units.
template <class T>
__global__ void logistic_rows(const T* logits, const int32_t* labels, LabelRows label_rows, int classes,
                              LogisticTarget target, T* dlogits, AllRows all) {
  wait_for_previous_kernel();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * classes;
  const RowLabel label = label_rows.label(labels, blockIdx.x);
  const int32_t* targets = label_rows.targets_of(labels, blockIdx.x);
  const bool known = label.known(classes);
  const float own = known ? to_float(logits[first + label.first]) : kNaN;
  double loss = known ? 0 : static_cast<double>(kNaN);
  int before = 0;
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += static_cast<int>(blockDim.x)) {
    const float logit = to_float(logits[first + c]);
    const UnitResult unit = target.shared.weight > 0 ? target.compare(logit, label.share_of(c), target_of(targets[c]))
                                                     : target.compare(logit, label.share_of(c));
    loss += unit.loss;
    before += ranks_before(logit, own, c < label.first);
    if (dlogits) dlogits[first + c] = from_float<T>(known ? unit.gradient : kNaN);
  }
  loss = reduce_block(loss, Sum{});
  before = reduce_block(before, Sum{});
  if (threadIdx.x == 0) all.results[blockIdx.x] = counted(loss, before);
  all.finish_in_last_block();
}

template <class T>
class CudaLoss : public SoftmaxLoss {
 public:
  CudaLoss(int classes, int64_t rows, const LossSettings& settings)
      : classes_(classes),
        rows_(rows),
        settings_(settings),
        results_({rows, static_cast<int64_t>(sizeof(RowResult) / sizeof(double))}, DType::kF64, Device::kCuda),
        arrived_(arrival_counters(1)) {
    check_loss(settings, classes);
  }

  void run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits, Tensor& sums,
           const LossFollowUp& follow_up) override {
    const int64_t rows = logits.shape().rows();
    OWT_CHECK(rows <= rows_, rows, " rows, bound for at most ", rows_);
    check_label_shape(labels, rows, settings_);
    if (rows == 0) return;
    OWT_CHECK_EQ(logits.shape().row_elements(), int64_t{classes_}, "one logit per class");
    const SmoothTarget target = target_of(settings_, pass.mode, classes_);
    const RowMargin margin = margin_of(settings_, pass.mode, logits.dtype());
    const TargetShare share = share_of_targets(settings_, pass.mode);
    const std::span results(static_cast<RowResult*>(results_.raw()), static_cast<size_t>(rows));
    T* const gradient = dlogits ? dlogits->data<T>() : nullptr;
    LossFollowUp then = follow_up;
    const AllRows all{results.data(), static_cast<unsigned*>(arrived_.raw()), LossFinish(results, sums, then)};
    if (settings_.type == LossType::kLogistic)
      launch(logistic_rows<T>, static_cast<unsigned>(rows), threads_for(classes_), *pass.stream, logits.data<T>(),
             labels.data<int32_t>(), settings_.label_rows(), classes_, LogisticTarget(target, pass.step_rows, share),
             gradient, all);
    else
      launch(softmax_rows<T>, static_cast<unsigned>(rows), threads_for(classes_), *pass.stream, logits.data<T>(),
             labels.data<int32_t>(), settings_.label_rows(), target, margin, share,
             RowGradient(pass.step_rows, target, margin.scale), gradient, all);
    if (!then.watched.empty()) add_rows(Cuda{}, {}, sums, then, *pass.stream);
  }

 private:
  int classes_;
  int64_t rows_;
  LossSettings settings_;
  Tensor results_;  // one RowResult for each row
  Tensor arrived_;  // the counter of rows that are done
};

}  // namespace

std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cuda cuda, int classes, int64_t rows, const LossSettings& settings) {
  std::unique_ptr<SoftmaxLoss> loss;
  with_element(activation_type(cuda.precision),
               [&](auto element) { loss = std::make_unique<CudaLoss<decltype(element)>>(classes, rows, settings); });
  return loss;
}

}  // namespace owt

#include "src/parallel/sharded_softmax_loss.h"

#include <algorithm>

#include "layers/loss/softmax_rows.cuh"
#include "src/core/elements.cuh"
#include "src/parallel/sharded_softmax_rows.h"

namespace owt {
namespace {

// A key that is larger for a larger float and, for equal floats, for a later thread; no two threads have the same.
__device__ unsigned long long rank_of(float value) {
  const unsigned bits = __float_as_uint(value);
  // For negative floats a larger value has smaller bits.
  const unsigned rising = bits >> 31 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(rising) << 32 | threadIdx.x;
}

// Collects the largest values of all threads in descending order: the thread with the largest gives it away and then
// offers its next.
__device__ void gather_largest(float (&top)[kTopClasses], float* largest) {
  for (int i = 0; i < kTopClasses; ++i) {
    if (static_cast<unsigned>(reduce_block(rank_of(top[0]), Larger{})) != threadIdx.x) continue;
    largest[i] = top[0];
    for (int next = 1; next < kTopClasses; ++next) top[next - 1] = top[next];
    top[kTopClasses - 1] = -kInfinity;
  }
}

// One block per row. dlogits: null unless the classes are logistic units.
template <class T>
__global__ void summarize_rows(const T* logits, const int32_t* labels, bool mixed, int first_class, int classes,
                               int numbers, bool logistic, int all_classes, RowMargin margin, LogisticTarget target,
                               T* dlogits, float* stats) {
  wait_for_previous_kernel();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * classes;
  const T* x = logits + first;
  stats += static_cast<int64_t>(blockIdx.x) * numbers;
  const RowLabel labelled = LabelRows{.mixed = mixed}.label(labels, blockIdx.x);
  const int label = labelled.first, second = labelled.second, thread = static_cast<int>(threadIdx.x),
            threads = static_cast<int>(blockDim.x);
  const bool known = labelled.known(all_classes);
  const bool mine = label >= first_class && label < first_class + classes;
  const int at = mine ? label - first_class : -1;
  ShardOwn own;
  if (mine) own.logit = margin.of_label(to_float(x[at])).logit;
  const auto logit_of = [=](int c) { return c == at ? own.logit : margin.scale * to_float(x[c]); };
  if (mixed && second >= first_class && second < first_class + classes) own.second = to_float(x[second - first_class]);

  float top[kTopClasses];
  for (float& value : top) value = -kInfinity;
  for (int c = thread; c < classes; c += threads) {
    const float logit = logit_of(c);
    keep_largest(top, logit);
    own.before += mine && ranks_before(logit, own.logit, c < at);
  }
  own.before = reduce_block(own.before, Sum{});
  const float origin = origin_of(reduce_block(top[0], Larger{}));
  gather_largest(top, stats + kTopStats);

  // NaN logits are not among the largest; they make the sum NaN.
  double sum = 0, below = 0;
  for (int c = thread; c < classes; c += threads) {
    const float logit = logit_of(c);
    below += static_cast<double>(logit) - static_cast<double>(origin);
    if (!logistic) {
      sum += static_cast<double>(expf(logit - origin));
      continue;
    }
    const UnitResult unit = target.compare(logit, labelled.share_of(first_class + c));
    sum += unit.loss;
    if (dlogits) dlogits[first + c] = from_float<T>(known ? unit.gradient : kNaN);
  }
  sum = reduce_block(sum, Sum{});
  below = reduce_block(below, Sum{});
  if (thread == 0) write_stats(stats, sum, below, classes, own, mixed);
}

// One block per row. begins: the first class of each rank, then the number of classes. dlogits: null for logistic
// units.
template <class T>
__global__ void finish_rows(const T* logits, const int32_t* labels, bool mixed, const float* all_stats,
                            const int* begins, int numbers, int ranks, int rank, SmoothTarget target, RowMargin margin,
                            RowGradient gradient, bool logistic, T* dlogits, RowResult* results) {
  wait_for_previous_kernel();
  RowLabel label = LabelRows{.mixed = mixed}.label(labels, blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const bool known = label.known(target.classes);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * numbers;
  const float* stats = all_stats + static_cast<int64_t>(blockIdx.x) * numbers;  // begins with rank 0

  float largest = -kInfinity;
  int owner = -1, second_owner = -1;
  for (int r = thread; r < ranks; r += threads) {
    largest = fmaxf(largest, stats[r * stride + kTopStats]);
    if (label.first >= begins[r] && label.first < begins[r + 1]) owner = r;
    if (label.second >= begins[r] && label.second < begins[r + 1]) second_owner = r;
  }
  largest = reduce_block(largest, Larger{});
  owner = reduce_block(owner, Larger{});
  if (mixed) second_owner = reduce_block(second_owner, Larger{});
  const float own = known ? stats[owner * stride + kOwnStat] : kNaN;
  const float second = known && mixed ? stats[second_owner * stride + kSecondStat] : own;

  double sum = 0, below = 0, losses = 0;
  int before = 0;
  for (int r = thread; r < ranks; r += threads) {
    const float* of_rank = stats + r * stride;
    const int classes = begins[r + 1] - begins[r];
    sum += sum_of_shard(of_rank, exp(static_cast<double>(of_rank[kTopStats]) - static_cast<double>(largest)));
    losses += sum_of_shard(of_rank, 1);
    below += below_of_shard(of_rank, classes, largest);
    before += before_of_shard(of_rank, classes, own, r == owner, r < owner);
  }
  sum = reduce_block(sum, Sum{});
  below = reduce_block(below, Sum{});
  before = reduce_block(before, Sum{});
  if (logistic) losses = reduce_block(losses, Sum{});

  if (dlogits) {
    const int classes = begins[rank + 1] - begins[rank];
    label.first = known ? label.first - begins[rank] : -1;
    label.second = known ? label.second - begins[rank] : -1;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * classes;
    const float scale = known ? gradient.scale(sum) : kNaN;
    const bool mine = label.first >= 0 && label.first < classes;
    const float slope = mine ? margin.of_label(to_float(logits[first + label.first])).slope : 1;
    for (int c = thread; c < classes; c += threads) {
      const float logit = c == label.first ? own : margin.scale * to_float(logits[first + c]);
      const float exponential = expf(logit - largest);
      dlogits[first + c] = from_float<T>(label.has(c) ? slope * gradient.at_label(exponential, scale, label.share_of(c))
                                                      : gradient.at(exponential, scale));
    }
  }
  if (thread != 0 || !results) return;
  if (logistic)
    results[blockIdx.x] = counted(known ? losses : static_cast<double>(kNaN), before);
  else
    results[blockIdx.x] = row_result(
        log(sum), label.mean(static_cast<double>(own), static_cast<double>(second)) - static_cast<double>(largest),
        below / target.classes, before, target);
}

template <class T>
class CudaShardedLoss : public ShardedSoftmaxLoss {
 public:
  CudaShardedLoss(const std::vector<Slice>& parts, int rank, int64_t rows, const LossSettings& settings)
      : parts_(parts, rank, settings),
        rank_(rank),
        rows_(rows),
        settings_(settings),
        results_({rows, static_cast<int64_t>(sizeof(RowResult) / sizeof(double))}, DType::kF64, Device::kCuda) {
    Tensor begins({parts_.ranks() + 1}, DType::kI32);
    for (int r = 0; r < parts_.ranks(); ++r) begins.data<int32_t>()[r] = static_cast<int32_t>(parts_.of(r).begin);
    begins.data<int32_t>()[parts_.ranks()] = parts_.classes();
    begins_ = begins.to(Device::kCuda);
  }

  void summarize(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits,
                 Tensor& stats) override {
    parts_.check_summarize(logits, labels, dlogits, stats);
    const Slice& mine = parts_.mine();
    const LogisticTarget target(target_of(settings_, pass.mode, parts_.classes()), pass.step_rows);
    launch(summarize_rows<T>, static_cast<unsigned>(labels.shape().rows()), threads_for(mine.size()), *pass.stream,
           logits.data<T>(), labels.data<int32_t>(), settings_.mixed_labels, mine.begin, mine.size(),
           loss_stats(settings_), logistic(), parts_.classes(), margin_of(settings_, pass.mode, logits.dtype()), target,
           dlogits ? dlogits->data<T>() : nullptr, stats.data());
  }

  void finish(const Pass& pass, const Tensor& logits, const Tensor& labels, const Tensor& all_stats, Tensor* dlogits,
              Tensor* sums, const LossFollowUp& then) override {
    parts_.check_finish(logits, labels, all_stats, dlogits);
    const int64_t rows = labels.shape().rows();
    OWT_CHECK(rows <= rows_, rows, " rows, bound for at most ", rows_);
    if (rows == 0) return;
    const SmoothTarget target = target_of(settings_, pass.mode, parts_.classes());
    const RowMargin margin = margin_of(settings_, pass.mode, logits.dtype());
    RowResult* results = sums ? static_cast<RowResult*>(results_.raw()) : nullptr;
    // The same number of threads on every rank: all add in the same order and get the same bits.
    const unsigned threads = threads_for(parts_.widest());
    launch(finish_rows<T>, static_cast<unsigned>(rows), threads, *pass.stream, logits.data<T>(), labels.data<int32_t>(),
           settings_.mixed_labels, all_stats.data(), begins_.data<int32_t>(), loss_stats(settings_), parts_.ranks(),
           rank_, target, margin, RowGradient(pass.step_rows, target, margin.scale), logistic(),
           dlogits && !logistic() ? dlogits->data<T>() : nullptr, results);
    if (sums) add_rows(Cuda{}, {results, static_cast<size_t>(rows)}, *sums, then, *pass.stream);
  }

 private:
  bool logistic() const { return settings_.type == LossType::kLogistic; }

  ClassParts parts_;
  int rank_;
  int64_t rows_;
  LossSettings settings_;
  Tensor begins_;   // the first class of each rank, then the number of classes
  Tensor results_;  // a RowResult per row
};

}  // namespace

std::unique_ptr<ShardedSoftmaxLoss> bind_sharded_softmax_loss(Cuda cuda, const std::vector<Slice>& parts, int rank,
                                                              int64_t rows, const LossSettings& settings) {
  std::unique_ptr<ShardedSoftmaxLoss> loss;
  with_element(activation_type(cuda.precision), [&](auto element) {
    loss = std::make_unique<CudaShardedLoss<decltype(element)>>(parts, rank, rows, settings);
  });
  return loss;
}

}  // namespace owt

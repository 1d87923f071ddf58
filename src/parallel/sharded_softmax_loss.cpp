#include "src/parallel/sharded_softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/loss/softmax_sweeps.h"
#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/parallel/sharded_softmax_rows.h"
#include "src/system/check.h"

namespace owt {

ClassParts::ClassParts(std::vector<Slice> parts, int rank, const LossSettings& settings)
    : parts_(std::move(parts)), rank_(rank), settings_(settings) {
  OWT_CHECK(rank >= 0 && rank < ranks(), "rank ", rank, " of ", ranks());
  int64_t end = 0;
  for (const Slice& part : parts_) {
    OWT_CHECK_EQ(part.begin, end, "the classes of a rank begin where those of the rank before end");
    OWT_CHECK(part.end >= part.begin, "classes ", part.begin, " to ", part.end);
    end = part.end;
  }
  OWT_CHECK(end <= std::numeric_limits<int>::max(), end, " classes");
  check_loss(settings, end);
  OWT_CHECK(settings.targets.classes == 0, "targets need whole rows of logits");
}

int64_t ClassParts::widest() const {
  int64_t widest = 0;
  for (const Slice& part : parts_) widest = std::max(widest, part.size());
  return widest;
}

// The first part that ends after the label; empty parts before it do not.
int ClassParts::owner(int label) const {
  const auto found =
      std::upper_bound(parts_.begin(), parts_.end(), label, [](int64_t c, const Slice& part) { return c < part.end; });
  return static_cast<int>(found - parts_.begin());
}

void ClassParts::check_rows(const Tensor& logits, const Tensor& labels, const Tensor* dlogits) const {
  check_label_shape(labels, logits.shape().rows(), settings_);
  OWT_CHECK_EQ(logits.shape().row_elements(), mine().size(), "one logit for each class of this rank");
  if (dlogits) OWT_CHECK_EQ(dlogits->shape(), logits.shape(), "a gradient for each logit");
}

void ClassParts::check_summarize(const Tensor& logits, const Tensor& labels, const Tensor* dlogits,
                                 const Tensor& stats) const {
  check_rows(logits, labels, dlogits);
  OWT_CHECK_EQ(stats.shape(), (Shape{labels.shape().rows(), loss_stats(settings_)}),
               "a row of statistics for each row");
}

void ClassParts::check_finish(const Tensor& logits, const Tensor& labels, const Tensor& all_stats,
                              const Tensor* dlogits) const {
  check_rows(logits, labels, dlogits);
  OWT_CHECK_EQ(all_stats.shape(), (Shape{ranks(), labels.shape().rows(), loss_stats(settings_)}),
               "the statistics of all ranks");
}

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kShardGrain = 1 << 11;  // exponentials per thread that justify waking it

// The largest logits in descending order; -infinity where there are fewer. NaN is ignored.
template <class T>
void find_largest(const RowLogits<T>& logits, float (&top)[kTopClasses]) {
  constexpr int64_t kBlock = 64;  // few blocks have a logit that is among the largest
  std::fill(top, top + kTopClasses, -kInfinity);
  for (int64_t first = 0; first < logits.count; first += kBlock) {
    const int64_t end = std::min(first + kBlock, logits.count);
    const bool labelled = logits.label.first >= first && logits.label.first < end;
    if (!labelled && !(logits.scale * largest_of(logits.inputs + first, end - first) > top[kTopClasses - 1])) continue;
    for (int64_t c = first; c < end; ++c) keep_largest(top, logits[c]);
  }
}

// The sums of a shard's logistic units: of their losses, and of logit - origin.
template <class T>
RowExponentials logistic_row(const RowLogits<T>& logits, const LogisticTarget& target, float origin, T* dlogits) {
  RowExponentials row;
  for (int c = 0; c < logits.count; ++c) {
    const UnitResult unit = target.compare(logits[c], logits.label.share_of(c));
    row.below += static_cast<double>(logits[c]) - static_cast<double>(origin);
    row.sum += unit.loss;
    if (dlogits) dlogits[c] = unit.gradient;
  }
  return row;
}

// logistic: null unless the classes are logistic units; only these have a gradient here. dlogits may be null.
template <class T>
void summarize_row(const RowLogits<T>& logits, bool mixed, const LogisticTarget* logistic, T* dlogits, float* stats) {
  float top[kTopClasses];
  find_largest(logits, top);
  const float origin = origin_of(top[0]);
  const RowExponentials row =
      logistic ? logistic_row(logits, *logistic, origin, dlogits) : row_exponentials(logits, origin, kept_in(dlogits));
  ShardOwn own;
  if (logits.has(logits.label.first)) own.logit = logits.own.logit, own.before = ranked_before(logits);
  if (logits.has(logits.label.second)) own.second = logits[logits.label.second];
  std::copy(top, top + kTopClasses, stats + kTopStats);
  write_stats(stats, row.sum, row.below, static_cast<int>(logits.count), own, mixed);
}

// The sums of a whole row.
struct RowSums {
  float largest;
  double sum, mean;  // sum of exp(x - largest); mean of x - largest
  double losses;     // the sum of all shards' sums without scaling, for logistic units
  float own;         // the first label's logit
  double labelled;   // the mean of both labels' logits
  int before;
};

// stats: of the row on rank 0; the statistics of the next rank are `stride` later.
RowSums add_up(const float* stats, int64_t stride, const ClassParts& parts, const RowLabel& label, bool mixed) {
  const int owner = parts.owner(label.first);
  const float own = stats[owner * stride + kOwnStat];
  const float second = mixed ? stats[parts.owner(label.second) * stride + kSecondStat] : own;
  RowSums row{-kInfinity, 0, 0, 0, own, label.mean(static_cast<double>(own), static_cast<double>(second)), 0};
  for (int r = 0; r < parts.ranks(); ++r) row.largest = std::max(row.largest, stats[r * stride + kTopStats]);
  for (int r = 0; r < parts.ranks(); ++r) {
    const float* of_rank = stats + r * stride;
    const int classes = static_cast<int>(parts.of(r).size());
    row.sum +=
        sum_of_shard(of_rank, std::exp(static_cast<double>(of_rank[kTopStats]) - static_cast<double>(row.largest)));
    row.losses += sum_of_shard(of_rank, 1);
    row.mean += below_of_shard(of_rank, classes, row.largest) / parts.classes();
    row.before += before_of_shard(of_rank, classes, row.own, r == owner, r < owner);
  }
  return row;
}

class CpuShardedLoss : public ShardedSoftmaxLoss {
 public:
  CpuShardedLoss(const std::vector<Slice>& parts, int rank, const LossSettings& settings)
      : parts_(parts, rank, settings), settings_(settings) {}

  void summarize(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits,
                 Tensor& stats) override {
    parts_.check_summarize(logits, labels, dlogits, stats);
    const int64_t rows = labels.shape().rows();
    check_labels(labels.data<int32_t>(), rows, parts_.classes(), settings_);
    float* out = stats.data();
    const LogisticTarget target(target_of(settings_, pass.mode, parts_.classes()), pass.step_rows);
    const RowMargin margin = margin_of(settings_, pass.mode, logits.dtype());
    const LogisticTarget* const logistic = settings_.type == LossType::kLogistic ? &target : nullptr;
    with_cpu_element(logits.dtype(), [&](auto element) {
      using T = decltype(element);
      const T* x = logits.data<T>();
      T* const dx = dlogits ? dlogits->data<T>() : nullptr;
      over_rows(rows, [&](int64_t row) {
        const int64_t first = row * columns();
        summarize_row(RowLogits<T>(x + first, columns(), here(labels.data<int32_t>(), row), margin),
                      settings_.mixed_labels, logistic, dx ? dx + first : nullptr, out + row * loss_stats(settings_));
      });
    });
  }

  void finish(const Pass& pass, const Tensor& logits, const Tensor& labels, const Tensor& all_stats, Tensor* dlogits,
              Tensor* sums, const LossFollowUp& then) override {
    parts_.check_finish(logits, labels, all_stats, dlogits);
    const int64_t rows = labels.shape().rows();
    const int32_t* label = labels.data<int32_t>();
    check_labels(label, rows, parts_.classes(), settings_);
    results_.resize(static_cast<size_t>(rows));
    with_cpu_element(logits.dtype(), [&](auto element) {
      using T = decltype(element);
      finish_rows(pass, rows, logits.data<T>(), label, all_stats.data(), dlogits ? dlogits->data<T>() : nullptr);
    });
    if (sums && rows > 0) add_rows(Cpu{}, results_, *sums, then, *pass.stream);
  }

 private:
  template <class T>
  void finish_rows(const Pass& pass, int64_t rows, const T* x, const int32_t* label, const float* stats, T* dx) {
    const SmoothTarget target = target_of(settings_, pass.mode, parts_.classes());
    const RowMargin margin = margin_of(settings_, pass.mode, DTypeOf<T>::value);
    const RowGradient gradient(pass.step_rows, target, margin.scale);
    const int64_t numbers = loss_stats(settings_);
    over_rows(rows, [&](int64_t row) {
      const RowSums of_row = add_up(stats + row * numbers, rows * numbers, parts_,
                                    settings_.label_rows().label(label, row), settings_.mixed_labels);
      const bool logistic = settings_.type == LossType::kLogistic;
      results_[static_cast<size_t>(row)] =
          logistic ? counted(of_row.losses, of_row.before)
                   : row_result(std::log(of_row.sum), of_row.labelled - static_cast<double>(of_row.largest),
                                of_row.mean, of_row.before, target);
      if (!dx || logistic) return;
      const int64_t first = row * columns();
      const RowLogits<T> logits(x + first, columns(), here(label, row), margin);
      const float growth = std::exp(stats[(parts_.rank() * rows + row) * numbers + kTopStats] - of_row.largest);
      write_row_gradient(logits, of_row.largest, growth, of_row.sum, gradient, dx + first);
    });
  }

  // The label relative to this rank's first class.
  RowLabel here(const int32_t* labels, int64_t row) const {
    RowLabel label = settings_.label_rows().label(labels, row);
    const auto first = static_cast<int>(parts_.mine().begin);
    label.first -= first, label.second -= first;
    return label;
  }

  int64_t columns() const { return parts_.mine().size(); }

  template <class Function>
  void over_rows(int64_t rows, const Function& function) const {
    parallel_for(rows, std::max<int64_t>(1, kShardGrain / std::max<int64_t>(columns(), kLossStats)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) function(row);
                 });
  }

  ClassParts parts_;
  LossSettings settings_;
  std::vector<RowResult> results_;
};

}  // namespace

std::unique_ptr<ShardedSoftmaxLoss> bind_sharded_softmax_loss(Cpu, const std::vector<Slice>& parts, int rank, int64_t,
                                                              const LossSettings& settings) {
  return std::make_unique<CpuShardedLoss>(parts, rank, settings);
}

std::unique_ptr<ShardedSoftmaxLoss> make_sharded_softmax_loss(const Compute& on, const std::vector<Slice>& parts,
                                                              int rank, int64_t rows, const LossSettings& settings) {
  return dispatch(on, [&](auto tag) { return bind_sharded_softmax_loss(tag, parts, rank, rows, settings); });
}

}  // namespace owt

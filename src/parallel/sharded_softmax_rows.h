// Common parts of the sharded softmax loss on all devices. The constexpr functions are for kernels too.
#pragma once

#include <limits>
#include <vector>

#include "layers/loss/softmax_rows.h"
#include "src/parallel/sharded_softmax_loss.h"

namespace owt {

// Which rank holds which classes, with checks of arguments.
class ClassParts {
 public:
  // Throws Error if the parts are not consecutive, or if the rank does not exist.
  ClassParts(std::vector<Slice> parts, int rank, const LossSettings& settings);

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(parts_.size()); }
  int classes() const { return static_cast<int>(parts_.back().end); }
  int64_t widest() const;
  const Slice& of(int rank) const { return parts_[static_cast<size_t>(rank)]; }
  const Slice& mine() const { return of(rank_); }
  int owner(int label) const;  // the rank that holds a class

  // Throw Error for tensors of other shapes.
  void check_summarize(const Tensor& logits, const Tensor& labels, const Tensor* dlogits, const Tensor& stats) const;
  void check_finish(const Tensor& logits, const Tensor& labels, const Tensor& all_stats, const Tensor* dlogits) const;

 private:
  void check_rows(const Tensor& logits, const Tensor& labels, const Tensor* dlogits) const;

  std::vector<Slice> parts_;
  int rank_;
  LossSettings settings_;
};

// Inserts a logit into the largest ones, which are in descending order. NaN is ignored.
constexpr void keep_largest(float (&top)[kTopClasses], float logit) {
  if (!(logit > top[kTopClasses - 1])) return;
  for (float& kept : top)
    if (logit > kept) {
      const float smaller = kept;
      kept = logit;
      logit = smaller;
    }
}

// The origin of exponents and means: the largest logit of a shard. If that is -infinity (no classes, or all logits are
// -infinity), the origin is 0: the exponentials are then 0 and the mean -infinity, as other shards need them.
constexpr float origin_of(float largest) { return largest == -std::numeric_limits<float>::infinity() ? 0.0f : largest; }

struct ShardOwn {  // data of a shard that holds the label; these defaults otherwise
  float logit = -std::numeric_limits<float>::infinity();
  int before = 0;
  float second = -std::numeric_limits<float>::infinity();  // the second label's logit, if labels are mixed
};

// sum: of exp(x - origin), or of the losses of logistic units. below: the sum of x - origin.
constexpr void write_stats(float* stats, double sum, double below, int classes, const ShardOwn& own, bool mixed) {
  const float rounded = static_cast<float>(sum);
  stats[kSumStat] = rounded;
  const bool finite = rounded - rounded == 0;
  stats[kSumRestStat] = finite ? static_cast<float>(sum - static_cast<double>(rounded)) : 0;
  stats[kMeanStat] = classes > 0 ? static_cast<float>(below / classes) : 0.0f;
  stats[kOwnStat] = own.logit;
  stats[kBeforeStat] = static_cast<float>(own.before < kTopClasses ? own.before : kTopClasses);
  if (mixed) stats[kSecondStat] = own.second;
}

// A shard's sum of exp(x - the row's largest). growth: exp(the shard's largest - the row's).
constexpr double sum_of_shard(const float* stats, double growth) {
  return (static_cast<double>(stats[kSumStat]) + static_cast<double>(stats[kSumRestStat])) * growth;
}

// A shard's sum of x - the row's largest.
constexpr double below_of_shard(const float* stats, int classes, float largest) {
  if (classes == 0) return 0;
  return classes * (static_cast<double>(stats[kMeanStat]) +
                    (static_cast<double>(stats[kTopStats]) - static_cast<double>(largest)));
}

// The number of classes of a shard that rank before the label, at most kTopClasses. The label's shard has counted them;
// for another shard they follow from its largest logits. lower: its classes are lower than the label.
constexpr int before_of_shard(const float* stats, int classes, float own, bool is_owner, bool lower) {
  if (is_owner) return static_cast<int>(stats[kBeforeStat]);
  int before = 0;
  for (int i = 0; i < kTopClasses && i < classes; ++i) before += ranks_before(stats[kTopStats + i], own, lower);
  return before;
}

}  // namespace owt

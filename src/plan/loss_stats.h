// The numbers that the ranks exchange about split logits (sharded_softmax_loss.h).
#pragma once

#include "layers/loss/softmax_loss.h"

namespace owt {

constexpr int kTopClasses = 5;  // enough to decide top-5

// The statistics of a rank about a row of its logits x, in f32. A rank without classes gives -infinities and zeros.
enum LossStat : int {
  // The largest logits in descending order, without NaN, padded with -infinity.
  kTopStats = 0,
  // The sum of exp(x - the largest), or of exp(x) if the largest is -infinity; and its rounding error in f32, because a
  // small loss is the logarithm of a sum close to 1. For logistic units: the sum of their losses.
  kSumStat = kTopStats + kTopClasses,
  kSumRestStat,
  kMeanStat,    // mean of x - the largest, or of x if that is -infinity
  kOwnStat,     // the label's logit if this rank holds it, else -infinity
  kBeforeStat,  // if this rank holds the label: its classes that rank before the label, at most kTopClasses; else 0
  kLossStats,
  kSecondStat = kLossStats  // only with mixed labels: as kOwnStat, for the second label
};
// The number of statistics of a rank about a row.
inline int64_t loss_stats(const LossSettings& settings) { return kLossStats + (settings.mixed_labels ? 1 : 0); }

}  // namespace owt

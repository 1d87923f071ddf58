// The loss of softmax_loss.h where each rank holds some of the classes of every row, and no rank ever sees all logits.
// Ranks are numbers here: what travels between the two halves is the caller's business.
//   1. summarize: per row, loss_stats() numbers about the classes of this rank.
//   2. The caller gathers everybody's: ranks x rows x loss_stats().
//   3. finish: from them loss and counts of the whole rows, and the gradient of this rank's logits.
// With LossType::kLogistic the gradient comes with the first half already: it is of this rank's logits alone, and only
// the loss of the whole row and its counts wait for the others.
// Losses, counts and gradients are those of SoftmaxLoss on whole rows, to rounding (of f32 in one exponential), with
// the same label smoothing, ties, infinities and NaN. A logit that is NaN on one rank makes the row's loss NaN, and
// with softmax its gradient on all ranks.
#pragma once

#include <memory>
#include <vector>

#include "layers/softmax_loss.h"

namespace owt {

constexpr int kTopClasses = 5;  // as many as decide about top-5

// What a rank says about a row of its logits x, in f32. Without classes: -infinities and zeros.
enum LossStat : int {
  // The largest logits, falling; NaN are left out; -infinity where there are fewer.
  kTopStats = 0,
  // Sum of exp(x - the largest), or of exp(x) where the largest is -infinity. And what f32 rounded off it: a small loss
  // is the logarithm of a sum close to 1. Of logistic units: of their losses.
  kSumStat = kTopStats + kTopClasses,
  kSumRestStat,
  kMeanStat,    // mean of x - the largest, or of x where that is -infinity
  kOwnStat,     // the label's logit where this rank holds it, else -infinity
  kBeforeStat,  // classes of this rank that rank before the label, kTopClasses at most, where it holds it; else 0
  kLossStats,
  kSecondStat = kLossStats  // with mixed labels besides: as kOwnStat, of the second label
};
// How many numbers a rank says about a row.
inline int64_t loss_stats(const LossSettings& settings) { return kLossStats + (settings.mixed_labels ? 1 : 0); }

class ShardedSoftmaxLoss {
 public:
  virtual ~ShardedSoftmaxLoss() = default;

  // In both: logits: rows x classes of this rank (may be 0), activations; labels: as SoftmaxLoss has them,
  // among all classes. 0 rows are allowed. A label that is no class throws Error naming row and value on the CPU; on a
  // GPU its row's loss is NaN. dlogits: like logits, or null where no gradient is wanted; of logistic units summarize()
  // writes it, else finish().

  // stats: rows x loss_stats(), f32, is overwritten.
  virtual void summarize(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits,
                         Tensor& stats) = 0;
  // all_stats: ranks x rows x loss_stats(), of these logits and labels; sums: as SoftmaxLoss's, with what follows, or
  // null: of ranks that see the same rows one counts them.
  virtual void finish(const Pass& pass, const Tensor& logits, const Tensor& labels, const Tensor& all_stats,
                      Tensor* dlogits, Tensor* sums, const LossFollowUp& then = {}) = 0;
};

// parts: the classes of each rank, one behind the other from 0 on; some may be empty. Throws Error where they are not.
// rank: whose logits these are. For batches of at most so many rows.
std::unique_ptr<ShardedSoftmaxLoss> bind_sharded_softmax_loss(Cpu, const std::vector<Slice>& parts, int rank,
                                                              int64_t rows, const LossSettings& settings = {});
std::unique_ptr<ShardedSoftmaxLoss> bind_sharded_softmax_loss(Cuda, const std::vector<Slice>& parts, int rank,
                                                              int64_t rows, const LossSettings& settings = {});
std::unique_ptr<ShardedSoftmaxLoss> make_sharded_softmax_loss(const Compute& on, const std::vector<Slice>& parts,
                                                              int rank, int64_t rows,
                                                              const LossSettings& settings = {});

}  // namespace owt

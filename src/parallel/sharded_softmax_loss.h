// The loss of softmax_loss.h if each rank holds some of the classes of every row and no rank ever sees all logits.
// Ranks are only numbers here; the caller transports the statistics between the two halves.
//   1. summarize: per row, loss_stats() numbers about the classes of this rank.
//   2. The caller gathers the numbers of all ranks: ranks x rows x loss_stats().
//   3. finish: computes from them loss and counts of the whole rows, and the gradient of this rank's logits.
// With LossType::kLogistic the first half already gives the gradient, which depends on this rank's logits alone. Only
// the loss of the whole row and its counts need the other ranks.
//
// Losses, counts and gradients equal the results of SoftmaxLoss on whole rows, up to rounding (of f32 in one
// exponential), with the same label smoothing, ties, infinities and NaN. A NaN logit on one rank makes the row's loss
// NaN and, with softmax, its gradient on all ranks.
#pragma once

#include <memory>
#include <vector>

#include "layers/loss/softmax_loss.h"
#include "src/plan/loss_stats.h"

namespace owt {

class ShardedSoftmaxLoss {
 public:
  virtual ~ShardedSoftmaxLoss() = default;

  // In both functions: logits: rows x classes of this rank (may be 0), activations. labels: as in SoftmaxLoss, among
  // all classes. 0 rows are allowed. A label that is no class throws Error with row and value on the CPU; on a GPU its
  // row's loss is NaN. dlogits: like logits, the same in both, or null if no gradient is needed; for logistic units
  // summarize() writes it, else finish(), which may need what summarize() has left there.

  // stats: rows x loss_stats(), f32; it is overwritten.
  virtual void summarize(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits,
                         Tensor& stats) = 0;
  // all_stats: ranks x rows x loss_stats(), for these logits and labels. sums: as in SoftmaxLoss, with the follow-up;
  // null on all but one of the ranks that see the same rows.
  virtual void finish(const Pass& pass, const Tensor& logits, const Tensor& labels, const Tensor& all_stats,
                      Tensor* dlogits, Tensor* sums, const LossFollowUp& then = {}) = 0;
};

// parts: the consecutive classes of each rank, from 0 on; some may be empty. Throws Error if they are not consecutive.
// rank: the owner of the logits. rows: the most rows of a batch.
std::unique_ptr<ShardedSoftmaxLoss> bind_sharded_softmax_loss(Cpu, const std::vector<Slice>& parts, int rank,
                                                              int64_t rows, const LossSettings& settings = {});
std::unique_ptr<ShardedSoftmaxLoss> bind_sharded_softmax_loss(Cuda, const std::vector<Slice>& parts, int rank,
                                                              int64_t rows, const LossSettings& settings = {});
std::unique_ptr<ShardedSoftmaxLoss> make_sharded_softmax_loss(const Compute& on, const std::vector<Slice>& parts,
                                                              int rank, int64_t rows,
                                                              const LossSettings& settings = {});

}  // namespace owt

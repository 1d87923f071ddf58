// The loss as one rank sees it, for one number of rows: on whole logits, or on this rank's columns of them, which are
// then never gathered (layers/sharded_softmax_loss.h).
#pragma once

#include <memory>

#include "layers/softmax_loss.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/parallel/plan.h"
#include "src/parallel/sharded_softmax_loss.h"

namespace owt {

class RankLoss {
 public:
  // comm: of the model group; must outlive this, as must profiler, which may be null.
  RankLoss(const Plan& plan, int64_t rows, Communicator& comm, Profiler* profiler);

  // Where the loss is sharded, before run(): sums up what the others must know of this rank's logits, and brings that
  // together. Under Plan::loss_follows() dlogits() is there then.
  void sum_up(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient);
  void start_statistics(const Stream& stream) { gathered_ = comm_.all_gather(stats_, all_stats_, stream.record()); }
  void wait_for_statistics(const Stream& stream) { stream.wait(gathered_); }
  // As SoftmaxLoss::run; logits as the last layer leaves them on this rank; a sharded loss is of what sum_up() got. The
  // gradient is in dlogits() then, in their shape, which may be that of images.
  void run(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient, Tensor& sums,
           const LossFollowUp& then = {});
  const Tensor& dlogits() const { return dlogits_; }

 private:
  Communicator& comm_;
  Profiler* profiler_;
  std::unique_ptr<SoftmaxLoss> whole_;
  std::unique_ptr<ShardedSoftmaxLoss> sharded_;
  Tensor logits_;          // of sum_up()
  Tensor flat_, dlogits_;  // the same
  Tensor stats_, all_stats_;
  Event gathered_;
};

}  // namespace owt

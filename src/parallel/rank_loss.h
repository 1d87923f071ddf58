// The loss on one rank, for one number of rows: of whole logits, or of this rank's columns, which are then never
// gathered (layers/sharded_softmax_loss.h).
#pragma once

#include <memory>

#include "layers/loss/softmax_loss.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/parallel/sharded_softmax_loss.h"
#include "src/plan/plan.h"

namespace owt {

class RankLoss {
 public:
  // comm: of the model group; it must outlive this, and so must profiler, which may be null.
  RankLoss(const Plan& plan, int64_t rows, Communicator& comm, Profiler* profiler);

  // If the loss is sharded, call these before run(): they compute the statistics of this rank's logits and all-gather
  // them. Under Plan::loss_follows(), sum_up() fills in dlogits().
  void sum_up(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient);
  void start_statistics(const Stream& stream) { gathered_ = comm_.all_gather(stats_, all_stats_, stream.record()); }
  void wait_for_statistics(const Stream& stream) { stream.wait(gathered_); }
  // Runs the loss like SoftmaxLoss::run. logits: the last layer's output on this rank; a sharded loss uses the logits
  // given to sum_up() instead. The gradient is then in dlogits(), in the shape of the logits, which may be images. With
  // Pass::sampled, labels are columns (ClassSample::columns_of()), and logits and dlogits() as in layers/sampled.h.
  void run(const Pass& pass, const Tensor& logits, const Tensor& labels, bool gradient, Tensor sums,
           const LossFollowUp& then = {});
  const Tensor& dlogits() const { return dlogits_; }

 private:
  struct Of {  // the loss of all classes, or of the sampled ones
    std::unique_ptr<SoftmaxLoss> whole;
    std::unique_ptr<ShardedSoftmaxLoss> sharded;
    int64_t columns;  // the number of logits of a row on this rank
  };
  Of make(const Plan& plan, int64_t rows, const std::vector<Slice>& parts) const;
  Of& of(const Pass& pass) { return pass.sampled ? sampled_ : all_; }
  // What the loss reads and writes of logits, or of their gradient.
  Tensor matrix(const Tensor& logits, const Pass& pass) {
    return logits.part(0, {logits.shape().rows(), of(pass).columns});
  }

  Communicator& comm_;
  Profiler* profiler_;
  Of all_, sampled_;
  Tensor logits_;  // given to sum_up()
  Tensor dlogits_;
  Tensor stats_, all_stats_;
  Event gathered_;
};

}  // namespace owt

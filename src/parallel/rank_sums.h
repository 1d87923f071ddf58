// Sums over all rows of a step (StepSums) for the ops of one rank. Each sum is an all-reduce among the ranks that have
// rows of the step in a layer, and later ops wait for it.
#pragma once

#include "layers/base/layer.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/plan/plan.h"

namespace owt {

class RankSums : public StepSums {
 public:
  // group: the ranks that add up. place: of this rank in its model group. group and plan must outlive this, and so must
  // profiler, which may be null.
  RankSums(const Plan& plan, int place, Communicator& group, Profiler* profiler);

  // Announces the layer that runs next, forward or backward. A rank without rows runs no op; here it adds zeros to the
  // sums of the other ranks' ops.
  void begin(const LayerPlan& layer, Phase phase, bool has_rows, const Stream& stream);
  void add_up(Tensor& sums, const Stream& stream) override;

 private:
  const Plan& plan_;
  int place_;
  Communicator& group_;
  Profiler* profiler_;
  Tensor nothing_;  // zeros, as many as any layer adds up at once
  TransferId transfer_ = kNoTransfer;
};

}  // namespace owt

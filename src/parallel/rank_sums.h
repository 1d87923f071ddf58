// Sums over all rows of a step (StepSums) for the ops of one rank: each is an all-reduce among the ranks that have rows
// of the step in a layer, and the ops behind it wait for that.
#pragma once

#include "layers/layer.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/parallel/plan.h"

namespace owt {

class RankSums : public StepSums {
 public:
  // group: the ranks that add up; place: of this rank in its model group. group and plan must outlive this, as must
  // profiler, which may be null.
  RankSums(const Plan& plan, int place, Communicator& group, Profiler* profiler);

  // The layer that runs next, forward or backward. A rank without rows runs no op, and adds nothing here to what the
  // others' ops add up.
  void begin(const LayerPlan& layer, Phase phase, bool has_rows, const Stream& stream);
  void add_up(Tensor& sums, const Stream& stream) override;

 private:
  const Plan& plan_;
  int place_;
  Communicator& group_;
  Profiler* profiler_;
  Tensor nothing_;  // as many zeros as any layer adds up at once
  TransferId transfer_ = kNoTransfer;
};

}  // namespace owt

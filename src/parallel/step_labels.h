// The labels of a step's rows on the ranks that see them at the loss, for one number of rows per step, or of a slice of
// one.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/parallel/plan.h"

namespace owt {

class StepLabels {
 public:
  // The plan moves labels. comm: that of the model group, which must outlive this. rank: of all.
  StepLabels(const Plan& plan, const StepRows& rows, int rank, Communicator& comm);

  // Starts to bring all labels of the group together. mine: those of this rank's rows (i32).
  void start(const Tensor& mine, const Stream& stream);
  // Those of the dense batch of a round, in its order, once they are there; valid until the next call.
  Tensor wait(int round, const Stream& stream);

 private:
  std::vector<Round> rounds_;
  Communicator& comm_;
  Tensor mine_, all_, of_round_;  // padded: most rows of a rank of the group; ranks x as many; those of a round
  Event gathered_;
};

}  // namespace owt

// The labels of a step's rows on the ranks that need them for the loss, for one number of rows per step or micro-batch.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/plan/plan.h"
#include "src/plan/rounds.h"

namespace owt {

class StepLabels {
 public:
  // The plan must have a labels transfer. comm: of the model group; it must outlive this. rank: among all ranks.
  StepLabels(const Plan& plan, const StepRows& rows, int rank, Communicator& comm);

  // Starts an all-gather of the labels in the group. mine: the labels of this rank's rows (i32).
  void start(const Tensor& mine, const Stream& stream);
  // Waits for the labels of a round's dense batch, in its order; valid until the next call.
  Tensor wait(int round, const Stream& stream);
  // After that, if the loss samples classes: the labels of all rounds.
  Tensor of_all_rounds(const Stream& stream);

 private:
  int64_t copy(const Round& round, Tensor to, const Stream& stream) const;  // returns its rows

  std::vector<Round> rounds_;
  Communicator& comm_;
  Tensor mine_, all_;            // padded to the most rows of a rank of the group; ranks x as many
  Tensor of_round_, of_rounds_;  // the second exists if the loss samples classes
  Event gathered_;
};

}  // namespace owt

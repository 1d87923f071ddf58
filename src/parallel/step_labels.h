// The labels of a step's rows on the ranks that need them for the loss, for one number of rows per step or micro-batch.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/plan/groups.h"
#include "src/plan/plan.h"
#include "src/plan/rounds.h"

namespace owt {

class StepLabels {
 public:
  // The plan must have a labels transfer. rank: among all ranks. groups: must outlive this.
  StepLabels(const Plan& plan, const StepRows& rows, int rank, const Groups& groups);

  // Starts an all-gather of the labels. mine: the labels of this rank's rows (i32).
  void start(const Tensor& mine, const Stream& stream);
  // Waits for the labels of a round's dense batch, in its order; valid until the next call.
  Tensor wait(int round, const Stream& stream);
  // After that, if the loss samples classes: the labels of all rows of the step.
  Tensor of_step(const Stream& stream);

 private:
  // Copies the labels of some rows of a rank to `to`, from its row `row` on. rank: among the ranks that gather.
  void of_rank(int rank, const Slice& rows, Tensor& to, int64_t row, const Stream& stream) const;

  Communicator& comm_;
  std::vector<Round> rounds_;
  int first_of_rounds_;        // the first rank of this rank's model group, among the ranks that gather
  std::vector<int64_t> rows_;  // the number of rows of each of these ranks
  Tensor mine_, all_;          // padded to the most rows of one of them; as many for each of them
  Tensor of_round_, of_step_;  // the second exists if the loss samples classes
  Event gathered_;
};

}  // namespace owt

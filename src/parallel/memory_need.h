// How much memory a rank needs, from the plan and the list of what it does in a step.
#pragma once

#include <cstdint>
#include <vector>

#include "src/parallel/action.h"

namespace owt {

// The need of the rank with the most rows, and with the largest parts of the weights, as rank 0 has. Workspaces of
// libraries and pools of drivers are not counted.
struct MemoryNeed {
  // Values, gradients, optimizer states, bf16 copies where there are some; others' gradients where a rank
  // updates for them.
  int64_t weight_bytes = 0;
  double step_row_bytes = 0;  // activations and their gradients, per row of the whole step
  int64_t piece_bytes = 0;    // what checkpoints are written and read in (layers/param.h)

  int64_t bytes(int64_t step_rows) const;
  int64_t rows_in(int64_t memory_bytes) const;  // of a step that fits; 0: not even one row
};

// What the plan's weights and these actions of a full step (order.h), of the rank at a place of its model group, need;
// without a list, those of training, where they need most.
MemoryNeed memory_need(const Plan& plan, const std::vector<Action>& actions, int place = 0);
MemoryNeed memory_need(const Plan& plan);

// The fewest slices of a step, more than the plan has and all alike, with which a full step fits; 0: none.
int slices_that_fit(Plan plan, int64_t memory_bytes);

// What one rank needs at least to train or to evaluate steps of the plan's rows, its own images once included. Neither
// pieces of files, which come and go, nor what only other ranks need is counted.
int64_t rank_bytes(const Plan& plan, Mode mode, int rank);

// What these actions, of which there may be none, hold on one rank, images included: the step_row_bytes of a full step,
// but for all of its rows.
int64_t step_bytes(const Plan& plan, const std::vector<Action>& actions, int rank);

}  // namespace owt

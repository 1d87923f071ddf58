// The memory that a rank needs, from the plan and the list of its actions in a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/action.h"

namespace owt {

// The need of the rank with the most rows and the largest parts of the weights, e.g. rank 0. Workspaces of libraries
// and memory pools of drivers are not counted.
struct MemoryNeed {
  // Values, gradients, optimizer state, bf16 copies if any, received gradients on a rank that updates for others, and
  // on a CPU the mirror of a run whose workers may change.
  int64_t weight_bytes = 0;
  double step_row_bytes = 0;  // activations and their gradients, per row of the whole step
  int64_t piece_bytes = 0;    // buffers for writing and reading checkpoints (layers/base/param.h)

  int64_t bytes(int64_t step_rows) const;
  int64_t rows_in(int64_t memory_bytes) const;  // rows of a step that fits; 0: not even one row
};

// The need of the plan's weights and of these actions of a full step (order.h), for the rank at a place of its model
// group. Without a list: of training, at the place that needs most.
MemoryNeed memory_need(const Plan& plan, const std::vector<Action>& actions, int place = 0);
MemoryNeed memory_need(const Plan& plan);

// The smallest number of equal micro-batches, larger than the plan's, with which a full step fits; 0: none.
int slices_that_fit(Plan plan, int64_t memory_bytes);
// What would fit into this memory in place of a step of `step_rows` rows, for an error message.
std::string what_fits(const Plan& plan, int64_t memory_bytes, int64_t step_rows);

// The least memory that a rank needs to train or evaluate steps of the plan's rows, including its own images once.
// Temporary buffers for files and needs of other ranks are not counted.
int64_t rank_bytes(const Plan& plan, Mode mode, int rank);
// The mirror's part of that. It is in the memory of the host, so it is 0 for a GPU, and if workers do not change.
int64_t mirror_bytes(const Plan& plan, int rank);

// The memory that these actions hold on one rank, including images; the list may be empty. It corresponds to
// step_row_bytes of a full step, for all of its rows.
int64_t step_bytes(const Plan& plan, const std::vector<Action>& actions, int rank);

}  // namespace owt

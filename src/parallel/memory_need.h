// How much memory a rank needs, estimated from the plan.
#pragma once

#include <cstdint>

#include "src/parallel/plan.h"

namespace owt {

// Of rank 0, which has the most of everything. Workspaces of libraries and pools of drivers are not counted.
struct MemoryNeed {
  int64_t weight_bytes = 0;   // values, gradients, velocities, and bf16 copies where there are some
  double step_row_bytes = 0;  // activations and their gradients, per row of the whole step
  int64_t piece_bytes = 0;    // what checkpoints are written and read in (layers/param.h)

  int64_t bytes(int64_t step_rows) const;
  int64_t rows_in(int64_t memory_bytes) const;  // of a step that fits; 0: not even one row
};

// The columns of a layer's output that rank 0 keeps.
int64_t kept_columns(const LayerPlan& layer);

MemoryNeed memory_need(const Plan& plan);

}  // namespace owt

// The rows of a plan's steps: how they are divided among ranks, rounds and micro-batches.
#pragma once

#include <vector>

#include "src/plan/plan.h"
#include "src/plan/rounds.h"

namespace owt {

StepRows rows_of(const Plan& plan, int64_t step_rows);
// The strategy whose rounds are used: dp if nothing is split but rows are, else the strategy asked for.
Strategy rounds_strategy(const Plan& plan);
// The number of rows that the layers from this one on process together. Ranks get whole groups of all layers' size;
// rounds get whole groups of the back part's size.
int64_t row_group(const Plan& plan, int64_t first_layer);
// Gradient accumulation: micro-batches of a step; smaller steps have fewer of about the same size.
int slices_in(const Plan& plan, int64_t step_rows);
int64_t most_slices(const Plan& plan);  // the most that a full step can have
// The rounds of a step under Rounds::kEqualParts. If an update follows each round, smaller steps have fewer rounds of
// the same size.
int equal_parts_in(const Plan& plan, int64_t step_rows);
// The number of rounds whose activations are kept at the same time.
int tapes(const Plan& plan, int place);

// The rows that rank 0 processes in a layer in a step of `step_rows`. total: of all micro-batches and rounds. at_once:
// of the largest one, since only one at a time is in memory.
struct LayerRows {
  int64_t total = 0, at_once = 0;
};
LayerRows layer_rows(const Plan& plan, int64_t layer, int64_t step_rows);
std::vector<int64_t> round_rows(const Plan& plan, const StepRows& step);  // rows of every round, over all replicas

// The ranks that gather their labels in a step, and the most rows of one of them. All ranks do if classes are sampled,
// else the ranks of a model group.
struct LabelGroup {
  Group group;
  int first, ranks;
  int64_t most_rows;
};
LabelGroup label_group(const Plan& plan, const StepRows& rows, int rank);

// The ranks that share the rows of a step in a layer, each with different rows.
Group rows_group(const Plan& plan, int64_t layer);
bool counts_rows(const Plan& plan, int rank);  // among ranks whose loss sees the same rows, one counts them

}  // namespace owt

// The order of a step: what every rank does, one action after the other. order.cpp is the one place that says it,
// strategy by strategy; src/train/step.cpp runs the list, step_price.cpp prices it, memory_need.cpp sizes it, and
// `owt plan --steps` and `--draw` show it.
#pragma once

#include <vector>

#include "src/parallel/action.h"

namespace owt {

// What the rank at this place of its model group does in a step of so many rows. All ranks do the same at the same
// time, but for the stages of a pipeline. Evaluation ends with the loss. Without a kind, of those that the plan has the
// one in which most travels: kAveraging, or else kSynchronous.
std::vector<Action> training(const Plan& plan, int64_t step_rows, StepKind kind, int place = 0);
std::vector<Action> training(const Plan& plan, int64_t step_rows, int place = 0);
std::vector<Action> evaluation(const Plan& plan, int64_t step_rows, int place = 0);

// The kinds of step that a run of the plan has, and which part of its steps each is; of those before average_from none.
struct KindOfStep {
  StepKind kind;
  double part;
};
std::vector<KindOfStep> kinds_of_steps(const Plan& plan);

// The orders of the table in strategy.cpp.
class StepOrder;
void data_parallel(StepOrder& step);
void updates_in_shares(StepOrder& step);
void parameter_server(StepOrder& step);
void one_weird_trick(StepOrder& step);
void model_parallel(StepOrder& step);
void pipeline(StepOrder& step);

}  // namespace owt

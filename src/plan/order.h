// The order (schedule) of a step: what every rank does, one action after the other. Its strategy (src/plan/strategies)
// is the only place that defines it. parallel/step_runner.cpp runs the list, predict/step_price.cpp prices it,
// predict/memory_need.cpp sizes it, and `owt plan --steps` and `--draw` show it.
#pragma once

#include <vector>

#include "src/plan/action.h"

namespace owt {

// The actions of the rank at this place of its model group in a step of `step_rows` rows. All ranks do the same at the
// same time, except the stages of a pipeline. Evaluation ends with the loss. Without `kind`, the kind is kAveraging if
// the plan has such steps, and kSynchronous otherwise.
std::vector<Action> training(const Plan& plan, int64_t step_rows, StepKind kind, int place = 0);
std::vector<Action> training(const Plan& plan, int64_t step_rows, int place = 0);
std::vector<Action> evaluation(const Plan& plan, int64_t step_rows, int place = 0);

// A kind of step in a run of the plan, and the fraction of steps of that kind. Steps before average_from have fraction
// 0.
struct KindOfStep {
  StepKind kind;
  double part;
};
std::vector<KindOfStep> kinds_of_steps(const Plan& plan);

}  // namespace owt

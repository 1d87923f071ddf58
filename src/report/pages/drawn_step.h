// A step of a run over time: the plan's actions with their durations in the run.
#pragma once

#include "src/plan/plan.h"
#include "src/report/pages/html.h"
#include "src/report/pages/run_record.h"

namespace owt {

// The plan of the run's recipe. Throws Error if this version cannot read it.
Plan plan_of(const RunRecord& run);

// draw_steps() of a step simulated with the times of all ranks of the run (timing.csv, walk_measured()). Throws Error
// without a plan, or if the file has times of more ranks.
Figure drawn_step(const RunRecord& run);

}  // namespace owt

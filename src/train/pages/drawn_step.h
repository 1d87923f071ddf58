// A step of a run on an axis of time: the plan's actions with what they took in the run.
#pragma once

#include "src/parallel/plan.h"
#include "src/train/pages/html.h"
#include "src/train/pages/run_record.h"

namespace owt {

// Of the run's recipe. Throws Error where that is none that this version reads.
Plan plan_of(const RunRecord& run);

// draw_steps() of a step that is walked with what all ranks of the run measured (timing.csv, walk_measured()). Throws
// Error where there is no plan, or times of more ranks.
Figure drawn_step(const RunRecord& run);

}  // namespace owt

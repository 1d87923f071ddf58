// What a step would take if a layer, a transfer or a rank were faster: the step is walked (step_walk.h) again with the
// times that all ranks measured, changed by that.
//
// What a row measured is shared out among its actions in proportion to rows and parts, and to the bytes of transfers. A
// transfer takes what the last of its ranks to come has seen of it, but for what ranks are busy with it themselves, as
// where they copy a message. Waiting for data comes before the first action; the time between rows is the same for
// each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/parallel/step_walk.h"
#include "src/train/rank_times.h"

namespace owt {

struct MeasuredWalk {
  double ms = 0;
  StepWalk step;               // that has all transfers
  std::vector<PathPart> path;  // through it
};
// A step of all ranks as these measured it; their figures add up (StepTimes::middle). A step that is timed does one
// thing after the other, but for collectives. Where weights are averaged every so many steps, it is a mean of steps.
MeasuredWalk walk_measured(const Plan& plan, std::span<const RankTimes> ranks);

struct WhatIf {
  std::string what;  // "conv2", "`gradients`", "all transfers", "waiting for data", "rank 1 as the others"
  double now_ms = 0, path_ms = 0;   // what it takes, on the rank where that is most; of it, on the longest way
  double half_ms = 0, free_ms = 0;  // the step if it were twice as fast, and if it took nothing
};

struct WhatIfs {
  double measured_ms = 0, walked_ms = 0;
  std::vector<WhatIf> all;  // what would save most first

  std::string table() const;
};

WhatIfs what_if(const Plan& plan, const StepTimes& times);

}  // namespace owt

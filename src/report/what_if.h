// Predicts the duration of a step if a layer, a transfer or a rank were faster: simulates the critical path
// (step_walk.h) with the measured times of all ranks, changed accordingly.
//
// The time of a row is divided among its actions in proportion to rows and parts, or to the bytes of transfers. A
// transfer takes the time seen by the last of its ranks to arrive, minus the ranks' own work, e.g. copying a message.
// Waiting for data comes before the first action. The time between rows is divided equally among actions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/predict/step_walk.h"
#include "src/train/rank_times.h"

namespace owt {

struct MeasuredWalk {
  double ms = 0;
  StepWalk step;               // a step with all transfers
  std::vector<PathPart> path;  // critical path of `step`
};
// Simulates a step of all ranks with these times, which must add up (StepTimes::middle). A profiled step runs
// everything in order, except collectives. With local SGD it is a mean over steps.
MeasuredWalk walk_measured(const Plan& plan, std::span<const RankTimes> ranks);

struct WhatIf {
  std::string what;  // "conv2", "`gradients`", "all transfers", "waiting for data", "rank 1 as the others"
  double now_ms = 0, path_ms = 0;   // its time on the rank with the most; its time on the critical path
  double half_ms = 0, free_ms = 0;  // the step if it were twice as fast; the step without it
};

struct WhatIfs {
  double measured_ms = 0, walked_ms = 0;
  std::vector<WhatIf> all;  // largest saving first

  std::string table() const;
};

WhatIfs what_if(const Plan& plan, const StepTimes& times);

}  // namespace owt

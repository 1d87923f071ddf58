// The result of a simulated run (virtual_run.h).
#pragma once

#include "src/train/evaluation.h"
#include "src/train/metrics.h"

namespace owt {

struct VirtualOutcome {
  bool finished = true;  // false: stopped by a signal
  Evaluation evaluation{};
  double seconds = 0;  // time of the virtual clock
  SimulationRecord record{};
};

}  // namespace owt

// What the ranks tell each other at the end of every step.
#pragma once

#include <cstdint>

#include "layers/softmax_loss.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"

namespace owt {

constexpr int64_t kStepResultBytes = 8 * 4;

struct StepResult {
  LossSums sums;      // over all rows of the step
  bool stop = false;  // a rank was asked to stop
};

// Sums over ranks; the host waits for it. `mine` must count every row of the step on one rank only.
StepResult share_result(const StepResult& mine, Communicator& comm, const Stream& stream, Profiler* profiler);

}  // namespace owt

// The log lines at the start of a run.
#pragma once

#include <cstdint>

#include "src/train/job.h"

namespace owt {

// Logs the model, the workers, the step and the learning rate; unusual settings; and for a resumed run its step and the
// total. records: steps are recorded as CUDA graphs.
void log_start(const Job& job, bool records, int64_t step, int64_t total_steps);

// Logs how often the state is copied to memory, and what this rank sends. Call it after the first renewal.
void log_mirror(const Mirror& mirror, int64_t every);

}  // namespace owt

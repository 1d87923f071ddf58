// What a run says when it starts.
#pragma once

#include <cstdint>

#include "src/train/job.h"

namespace owt {

// Lines of the log: the model, the workers, the step and the rate; what is unusual about them; after which step of how
// many the run goes on. records: steps are recorded as CUDA graphs.
void log_start(const Job& job, bool records, int64_t step, int64_t total_steps);

}  // namespace owt

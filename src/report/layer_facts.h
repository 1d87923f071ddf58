// Facts about the layers of a plan that need no timing.
#pragma once

#include <cstdint>
#include <vector>

#include "src/plan/plan.h"
#include "src/report/report.h"

namespace owt {

// The work of rank 0 in a step of `step_rows` rows, layer by layer in the order of the plan, for reports. In evaluation
// nothing runs backward.
std::vector<LayerFacts> layer_facts(const Plan& plan, int64_t step_rows, Mode mode = Mode::kTrain);

}  // namespace owt

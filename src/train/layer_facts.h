// What is known of the layers of a plan without timing them.
#pragma once

#include <cstdint>
#include <vector>

#include "src/parallel/plan.h"
#include "src/train/report.h"

namespace owt {

// What rank 0 does in a step of so many rows, layer by layer in the order of the plan; for reports. Nothing goes
// backward where the step evaluates.
std::vector<LayerFacts> layer_facts(const Plan& plan, int64_t step_rows, Mode mode = Mode::kTrain);

}  // namespace owt

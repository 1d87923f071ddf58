// Places the layers on the ranks of a model group: which layers are split, how, and which pipeline stage a layer is in.
// A part of make_plan().
#pragma once

#include <memory>
#include <vector>

#include "src/plan/plan.h"

namespace owt {

// The boundary (Plan::boundary). The plan needs its request and model_ranks.
int64_t boundary_of(const Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers);

// Fills in layouts, parts and transfers of the layers of the back part, which the plan must already describe. For a
// pipeline, it fills in the stages of all layers. Throws Error if the strategy cannot split the model.
void place_layers(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers);

}  // namespace owt

// Which rank of a model group has what of each layer: from which layer on they are split, how, or whose stage a layer
// is in. A part of make_plan().
#pragma once

#include <memory>
#include <vector>

#include "src/parallel/plan.h"

namespace owt {

// The boundary (Plan::boundary), of a plan with its request and model_ranks.
int64_t boundary_of(const Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers);

// Fills in layouts, parts and moves of the layers behind the boundary, which are described in the plan; or the stages
// of a pipeline, which are all of its layers. Throws Error for what the strategy cannot split.
void place_layers(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers);

}  // namespace owt

// The layers of a plan's back part run in stages between transfers of features, or between ranks.
#pragma once

#include "src/plan/plan.h"

namespace owt {

// Whether the plan cuts the network before this layer: at the boundary, or between the layers of two ranks.
bool begins_part(const Plan& plan, int64_t layer);
// The first layer of the back part, before which rows become batches of the group (seam.h); null if nothing is split,
// and in a pipeline.
const LayerPlan* seam_of(const Plan& plan);
bool begins_stage(const Plan& plan, int64_t layer);  // whether this is the first layer of a stage
// The shape of an input row of that layer on the rank at this place of its model group.
Shape input_of(const Plan& plan, int64_t layer, size_t place);
// The layout of the gradient of the input of the layers [first, next gather). A column-split layer gives partial sums.
Layout gradient_layout(const Plan& plan, int64_t first);
// Whether the gradient of the input of this place's back part is used.
bool wants_input_gradient(const Plan& plan, int place);

}  // namespace owt

// Images and labels out of nothing, for timing.
#pragma once

#include <optional>

#include "data/batch.h"
#include "src/net/model.h"
#include "src/parallel/plan.h"

namespace owt {

// Rows `rows` of a step as the request says, where it computes, in plain images or a layout; the same values for a row
// whoever makes it.
Batch made_up_batch(const Model& model, const Slice& rows, const PlanRequest& request,
                    const std::optional<ImageLayout>& layout = {});

}  // namespace owt

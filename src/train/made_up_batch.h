// Synthetic images and labels, for timing.
#pragma once

#include <optional>

#include "data/batch.h"
#include "src/net/model.h"
#include "src/plan/plan_request.h"

namespace owt {

// The rows `rows` of a step, as the request describes it, on its device, as plain images or in a layout. A row has the
// same values on every rank.
Batch made_up_batch(const Model& model, const Slice& rows, const PlanRequest& request,
                    const std::optional<ImageLayout>& layout = {});

}  // namespace owt

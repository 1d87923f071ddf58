// What a GPU is given to do for layers in a row, op by op.
#pragma once

#include <span>
#include <vector>

#include "layers/layer.h"
#include "src/parallel/step_launches.h"

namespace owt {

using Layers = std::span<Layer* const>;

struct Launches {
  std::vector<StepLaunch> forward, backward;  // each in the order in which it runs
};

// in: a batch of one row. wants_dx: somebody needs the gradient of it. The launches' layers count from the first.
Launches launches_of(Layers layers, const Shape& in, bool wants_dx, DType dtype);
// The outputs that the loss looks through for bad values (bad_values.h).
int64_t watched_arrays(Layers layers);

}  // namespace owt

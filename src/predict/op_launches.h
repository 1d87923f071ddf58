// The launches on a GPU for consecutive layers, op by op.
#pragma once

#include <span>
#include <vector>

#include "layers/base/layer.h"
#include "src/predict/step_launches.h"

namespace owt {

using Layers = std::span<Layer* const>;

struct Launches {
  std::vector<StepLaunch> forward, backward;  // each in the order of execution
};

struct LaunchChoices {
  DType dtype;                // type of the activations
  bool convs_mask_dx = true;  // launches_of_step()
};

// in: a batch of one row. wants_dx: the gradient of `in` is used. StepLaunch::layer counts from the first of these
// layers.
Launches launches_of(Layers layers, const Shape& in, bool wants_dx, const LaunchChoices& choices);
// The number of outputs that the loss searches for bad values (bad_values.h).
int64_t watched_arrays(Layers layers);

}  // namespace owt

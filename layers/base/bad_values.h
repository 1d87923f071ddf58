// Finds values that are not finite, and the layer that they come from.
#pragma once

#include <cstdint>
#include <span>

#include "src/core/tensor.h"

namespace owt {

// Blocks the host.
bool all_finite(const Tensor& values);

// An activation, and the layer to report for it.
struct Watched {
  Tensor values;
  int32_t layer;
};
// On the CPU. The minimum of `first` and of the layers that have a value that is not finite.
int32_t first_bad_layer(std::span<const Watched> watched, int32_t first);

}  // namespace owt

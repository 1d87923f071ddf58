// Values that are not finite, and the layer they come from.
#pragma once

#include <cstdint>
#include <span>

#include "src/core/tensor.h"

namespace owt {

// The host waits.
bool all_finite(const Tensor& values);

// An activation and the layer it is to be named after.
struct Watched {
  Tensor values;
  int32_t layer;
};
// On the CPU. The least of `first` and the layers whose values are not all finite.
int32_t first_bad_layer(std::span<const Watched> watched, int32_t first);

}  // namespace owt

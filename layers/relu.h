// Rectified linear unit, in place.
//   y = max(x, 0);  dx = dy where y > 0, else 0.
// Keys: none.
#pragma once

#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_relu(const LayerSpec& spec);
std::unique_ptr<Op> bind_relu(Cpu);
std::unique_ptr<Op> bind_relu(Cuda);

}  // namespace owt

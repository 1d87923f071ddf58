// The layer types of model files: the types of layers/registry.h, and composite layers.
#pragma once

#include <span>

#include "layers/registry.h"

namespace owt {

std::span<const LayerType> net_layer_types();  // for make_layer()

}  // namespace owt

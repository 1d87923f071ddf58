// Decides which layers of a net work in place.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layers/base/layer.h"

namespace owt {

// For each layer of a sequence: whether its output shares memory with the output before it. This requires that the
// layer can work in place (Layer::in_place) and leaves intact what backward of the layers that wrote this memory reads
// from it (Layer::reads_of_output). The first layer never does, because its input belongs to the caller. Tapes, plans
// and all code that counts memory or launches use this decision.
std::vector<bool> work_in_place(std::span<Layer* const> layers);
std::vector<bool> work_in_place(std::span<const std::unique_ptr<Layer>> layers);

}  // namespace owt

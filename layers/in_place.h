// Which layers of a net work in place.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layers/layer.h"

namespace owt {

// For each of the layers, which run one after the other, whether its output takes the memory of the output before it:
// it can (Layer::in_place), and leaves there what backward of all layers that wrote into that memory reads of it
// (Layer::reads_of_output). The first one never does, because its input is the caller's. Tapes, plans and whoever
// counts memory or launches decide by this.
std::vector<bool> work_in_place(std::span<Layer* const> layers);
std::vector<bool> work_in_place(std::span<const std::unique_ptr<Layer>> layers);

}  // namespace owt

// parallel.strategy = "auto".
#pragma once

#include <optional>

#include "src/parallel/network.h"
#include "src/train/session.h"

namespace owt {

// Where the recipe leaves the strategy to the program: times a few steps of the model's layers and some collectives
// among the ranks, here and now, and sets the strategy and the grid with the least predicted step time
// (src/parallel/choose.h), in the recipe too, so that the run can be repeated. To be called by all processes of a
// launch, before the ranks run. Returns the links, on rank 0, where they were measured.
std::optional<Network> settle_strategy(Settings& settings, const Session& session);

}  // namespace owt

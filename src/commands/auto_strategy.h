// Implements parallel.strategy = "auto".
#pragma once

#include <optional>

#include "src/predict/network.h"
#include "src/train/session.h"

namespace owt {

// If the recipe's strategy is "auto": times a few steps of the model's layers and some collectives among the ranks, and
// sets the strategy and the grid with the shortest predicted step (src/predict/choose.h). It also sets them in the
// recipe, so that the run can be repeated. Collective over the processes of a launch, before the ranks run. Returns the
// links on rank 0, if they were measured.
std::optional<Network> settle_strategy(Settings& settings, const Session& session);

}  // namespace owt

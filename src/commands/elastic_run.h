// A training run whose workers leave and join (owt launch --elastic). After each change the command trains again in the
// same process, with the new ranks and the state in memory.
#pragma once

#include <functional>

#include "src/commands/run.h"

namespace owt {

// Calls train(memory) until the run ends or this worker has left it; with null if the workers do not change. Throws
// what train() throws, except the loss of other workers.
TrainOutcome train_through_changes(const std::function<TrainOutcome(RunMemory*)>& train);

}  // namespace owt

// The tensors of a worker in checkpoint files: weights, optimizer state, averaged weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/train/worker.h"

namespace owt {

// Collective: loads weights and optimizer state from a checkpoint folder. The state of layers that were frozen there
// starts at 0. Throws Error as load_tensors() does.
void load_worker(const std::string& folder, Worker& worker);

// Loads the averaged weights, which the worker must have.
void load_ema(const std::string& folder, Worker& worker);

// Collective: rank 0 writes the files into the folder, and returns their names and checksums. Only rank 0 throws
// NoRoom, after all ranks have done their part.
std::map<std::string, uint64_t> save_worker(const std::string& folder, const Plan& plan, Worker& worker);

}  // namespace owt

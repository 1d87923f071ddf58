// The tensors of a worker in the files of a checkpoint: weights, what the optimizer keeps, averaged weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/train/worker.h"

namespace owt {

// Collective: the weights and what the optimizer keeps, from a checkpoint's folder. What it keeps of layers that were
// frozen there begins at 0. Throws Error as load_tensors() does.
void load_worker(const std::string& folder, Worker& worker);

// The same of the averaged weights, which the worker must have.
void load_ema(const std::string& folder, Worker& worker);

// Collective: rank 0 writes the files into the folder. Returns their names and checksums there. Throws NoRoom on rank 0
// alone, after all ranks have done their part.
std::map<std::string, uint64_t> save_worker(const std::string& folder, const Plan& plan, Worker& worker);

}  // namespace owt

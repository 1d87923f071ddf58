// Checks whether hosts or GPUs have the memory that a command needs, before any rank allocates it. Without this check
// the kernel would end a process without a message, or a GPU would end a run that has started.
//
// The sum includes weights, gradients, optimizer state, the activations of a step, and waiting batches: on hosts the
// loader's batches, on GPUs batches in GPU memory (data/batch_memory.h). It excludes existing memory of the process,
// workspaces of libraries and short-lived buffers, so that nothing is refused that would have run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/plan/plan.h"
#include "src/recipe/settings.h"
#include "src/system/host_limits.h"

namespace owt {

// The bytes that a rank of the plan needs.
using RankNeed = std::function<int64_t(const Plan& plan, int rank)>;

struct MemoryUse {
  Mode mode = Mode::kTrain;
  int batches = 1;       // batches of each rank: the loader's, and the current one
  RankNeed beside = {};  // what a rank needs in addition; none: nothing
};
constexpr int kLoadedBatches = 3;  // batches of a loader (data/loader.h)

// Throws Error if the ranks of a host or a GPU together need more than its free memory, with the largest step that
// would fit. Collective over the processes of a launch.
void check_memory(const Plan& plan, const MemoryUse& use);
// Checks runs that time each worker with a whole network and its part of the rows.
void check_memory_of_whole_networks(const Settings& settings);
// The same if this process does all the work; need() is called for rank 0. Not collective.
void check_memory(const Plan& plan, const RankNeed& need);

// The memory of a host or a GPU, and the ranks that share it.
struct MemoryOfRanks {
  std::string name;  // for people: "this host", "GPU 0 (NVIDIA H100)"
  std::vector<int> ranks;
  FreeMemory free;
};
// The check for a single memory, which the functions above use.
void check_memory(const Plan& plan, const MemoryOfRanks& memory, const RankNeed& need);

}  // namespace owt

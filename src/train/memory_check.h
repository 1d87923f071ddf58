// Whether the hosts, or the GPUs, have the memory that a command is about to take, asked before any rank takes it:
// where memory is short the kernel ends a process without a word, and a GPU ends a run that has begun.
//
// Counted are weights, their gradients, the optimizer's states, the activations of a step, and batches that wait: on
// hosts those of the loader, on GPUs what lies there of them (data/batch_memory.h). Not counted are what the process
// has already, workspaces of libraries and what is taken for a moment only, so that nothing is refused which would have
// run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/core/host_limits.h"
#include "src/parallel/plan.h"
#include "src/train/settings.h"

namespace owt {

struct MemoryUse {
  Mode mode = Mode::kTrain;
  int batches = 1;  // of each rank: what the loader makes ahead, and that which is worked on
};
constexpr int kLoadedBatches = 3;  // of a loader (data/loader.h)

// The bytes that a rank of the plan takes.
using RankNeed = std::function<int64_t(const Plan& plan, int rank)>;

// Throws Error where what the ranks of a host, or of a GPU, take together is more than is free there, with the most
// images of a step that would fit. Collective over the processes of a launch.
void check_memory(const Plan& plan, const MemoryUse& use);
// The same where each worker is timed with a whole network and its part of the rows.
void check_memory_of_whole_networks(const Settings& settings);
// The same where this process does all the work; need() is called for rank 0. Not collective.
void check_memory(const Plan& plan, const RankNeed& need);

// The memory of a host, or of a GPU, with the ranks that share it.
struct MemoryOfRanks {
  std::string name;  // for people: "this host", "GPU 0 (NVIDIA H100)"
  std::vector<int> ranks;
  FreeMemory free;
};
// What the above ask about each memory.
void check_memory(const Plan& plan, const MemoryOfRanks& memory, const RankNeed& need);

}  // namespace owt

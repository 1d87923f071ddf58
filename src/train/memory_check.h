// Whether this host has the memory that a command is about to take, asked before any rank takes it: where memory is
// short the kernel ends a process without a word.
//
// Counted are weights, their gradients, the optimizer's states, the activations of a step, and batches that wait. Not
// counted are what the process has already, workspaces of libraries and what is taken for a moment only, so that
// nothing is refused which would have run. On a GPU nothing is asked: what it has not got it refuses itself, with a
// message, before the first step.
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

// Throws Error where what the ranks of a host take together is more than is free there, with the most images of a step
// that would fit. Collective over the processes of a launch.
void check_memory(const Plan& plan, const MemoryUse& use);
// The same where each worker is timed with a whole network and its part of the rows.
void check_memory_of_whole_networks(const Settings& settings);
// The same where this process does all the work; need() is called for rank 0. Not collective.
void check_memory(const Plan& plan, const RankNeed& need);

// A host with the ranks that share its memory.
struct HostOfRanks {
  std::string name;  // for people: "this host"
  std::vector<int> ranks;
  FreeMemory free;
};
// What the above ask about each host.
void check_memory(const Plan& plan, const HostOfRanks& host, const RankNeed& need);

}  // namespace owt

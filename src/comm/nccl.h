// Ranks with one GPU each, in threads or processes, connected by NCCL.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>

#include "src/comm/communicator.h"
#include "src/comm/thread_group.h"

namespace owt {

// The identity of a group of ranks: one rank makes it, and all ranks get the same one.
struct NcclId {
  std::array<char, 128> bytes{};
};
NcclId make_nccl_id(Cpu);  // throws Error: not built
NcclId make_nccl_id(Cuda);

struct NcclMember {
  int rank = 0, ranks = 1;
  NcclId id;
  std::function<bool()> aborted{};                                // true once a rank failed; asked often, by any thread
  std::chrono::milliseconds patience = std::chrono::minutes(10);  // time limit for calls that make no progress
  ThreadGroup::Member here{};  // the place among ranks that are threads of this process; no group: they are processes
};

// For tensors on the calling host thread's GPU; NCCL allows one rank per GPU. Returns when all ranks have joined. If a
// rank fails, NCCL reports an error, or nothing finishes for too long, the work queued on the GPU ends with undefined
// results. Every event and every later call then throws: Aborted for another rank's failure, otherwise Error. Its
// collectives could be recorded into graphs, but this is untested on GPUs, and NCCL may deadlock if ranks are threads
// of one process.
// Every route for messages has its own NCCL communicator and stream. Their kernels run on the GPU beside the kernels of
// collectives. If a GPU runs out of queues (CUDA_DEVICE_MAX_CONNECTIONS), one may wait for another. This is untested on
// GPUs too.
// Sums in the NVLink switches are off, because they differ from run to run (unless NCCL_NVLS_ENABLE is set).
std::unique_ptr<Communicator> make_nccl_communicator(Cpu, const NcclMember& member);  // throws Error: not built
std::unique_ptr<Communicator> make_nccl_communicator(Cuda, const NcclMember& member);

}  // namespace owt

// Ranks with a GPU of their own each, in threads or processes, through NCCL.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>

#include "src/comm/communicator.h"
#include "src/comm/thread_group.h"

namespace owt {

// What makes ranks one group: one of them makes it, and all get the same.
struct NcclId {
  std::array<char, 128> bytes{};
};
NcclId make_nccl_id(Cpu);  // throws Error: not built
NcclId make_nccl_id(Cuda);

struct NcclMember {
  int rank = 0, ranks = 1;
  NcclId id;
  std::function<bool()> aborted{};                                // true once a rank failed; asked often, by any thread
  std::chrono::milliseconds patience = std::chrono::minutes(10);  // with calls that do not come to an end
  ThreadGroup::Place here{};  // among the ranks, where they are threads of this process; no group: they are not
};

// For tensors on the calling host thread's GPU, for which NCCL takes one rank only. Returns when all ranks have come.
// When a rank fails, NCCL reports an error, or nothing comes to an end for too long, what is queued on the GPU ends,
// with undefined results, and every event and every further call throws: Aborted for another rank's failure, else
// Error. Its collectives could be recorded into graphs, which was not tried on GPUs yet; NCCL may deadlock then where
// ranks are threads of one process.
// Every route for messages has a communicator of NCCL and a stream of its own. Their kernels stand side by side on the
// GPU with those of collectives; where a GPU runs out of queues (CUDA_DEVICE_MAX_CONNECTIONS) one may wait for another.
// This was not tried on GPUs yet either.
// Summing in the NVLink switches is off, because it is not the same in every run (unless NCCL_NVLS_ENABLE is set).
std::unique_ptr<Communicator> make_nccl_communicator(Cpu, const NcclMember& member);  // throws Error: not built
std::unique_ptr<Communicator> make_nccl_communicator(Cuda, const NcclMember& member);

}  // namespace owt

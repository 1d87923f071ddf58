// Ranks as threads of one process, or each as a process.
#pragma once

#include <functional>
#include <vector>

#include "src/comm/communicator.h"
#include "src/core/gpus.h"

namespace owt {

// Runs body(communicator) on `ranks` host threads, one per rank, each with its own team of `team` compute threads, and
// returns when all are done. The first exception ends all ranks: the others' collectives throw Aborted, and it is
// thrown again here. ranks = 1 runs on a thread too. Calls of collectives may block their rank until all have come.
//
// kCuda: every rank has a GPU of its own where there are as many, and they talk through NCCL; or all share the only one
// and talk through its memory. Throws Error where there are several, but too few.
//
// In a launch of several processes (launch.h) each of them is one rank, and all call this with `ranks` as many as they
// are; body runs once here, on a thread, and the ranks talk through MPI, or through NCCL where the local rank chooses
// the GPU. An exception ends the other processes' collectives too; there and here no further run is possible then.
void run_ranks(int ranks, int team, const std::function<void(Communicator&)>& body, Device device = Device::kCpu);

// The GPUs on which run_ranks() would run the ranks of this process: those of all `ranks` that are threads, or its own
// one in a launch. Throws Error where there is none, and where there are several, but too few.
std::vector<Gpu> gpus_of_ranks(int ranks);

// Throws Error where a launcher has started several processes, but not so many.
void check_launched(int ranks);

}  // namespace owt

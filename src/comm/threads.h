// Ranks that are threads of one process, or one process each.
#pragma once

#include <functional>
#include <vector>

#include "src/comm/communicator.h"
#include "src/core/gpus.h"

namespace owt {

// Runs body(communicator) on `ranks` host threads, one per rank, each with its own team of `team` compute threads.
// Returns when all are done. The first exception ends all ranks: the others' collectives throw Aborted, and the
// exception is thrown again here. ranks = 1 runs on a thread too. Calls of collectives may block their rank until all
// ranks have called.
//
// kCuda: every rank has its own GPU if there are enough, and ranks communicate through NCCL. If there is only one GPU,
// all ranks share it and communicate through its memory. Throws Error if there are several, but too few.
//
// In a launch of several processes (launch.h) each process is one rank, and all call this with `ranks` equal to their
// number. body runs once in each process, on a thread. The ranks communicate through MPI or TCP, or through NCCL on the
// GPUs of their local ranks (owt launch --share-gpu: all on the first GPU). An exception ends the other processes'
// collectives too; afterwards no process can run again.
void run_ranks(int ranks, int team, const std::function<void(Communicator&)>& body, Device device = Device::kCpu);

// The GPUs that run_ranks() would use for the ranks of this process: for all `ranks` threads, or for its own rank in a
// launch. Throws Error if there is none, or if there are several, but too few.
std::vector<Gpu> gpus_of_ranks(int ranks);

// Throws Error if a launcher has started several processes, but not `ranks`.
void check_launched(int ranks);

}  // namespace owt

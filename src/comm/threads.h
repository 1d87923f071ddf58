// Ranks as threads of one process, and the communicator among them (shared memory).
#pragma once

#include <functional>

#include "src/comm/communicator.h"

namespace owt {

// Runs body(communicator) on `ranks` host threads, one per rank, each with its own team of `team` compute threads, and
// returns when all are done. The first exception ends all ranks: the others' collectives throw Aborted, and it is
// thrown again here. ranks = 1 runs on a thread too. Collectives block their rank until all ranks have come.
void run_ranks(int ranks, int team, const std::function<void(Communicator&)>& body);

}  // namespace owt

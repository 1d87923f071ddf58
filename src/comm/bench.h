// How long collectives take.
#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

// Those that can be timed; of a message both ends, as one.
std::vector<Collective> all_collectives();

// Bytes over time that a link must carry, of the bytes of the whole tensor over time; independent of the number of
// ranks where a ring is the algorithm. Source: nccl-tests, doc/PERFORMANCE.md.
//   all_reduce 2(K-1)/K; all_gather, reduce_scatter, all_to_all (K-1)/K; broadcast, reduce, send 1
double bus_factor(Collective collective, int ranks);

struct BenchLimits {
  int warm_up = 2;       // calls that are not timed
  int most_calls = 50;   // timed
  int fewest_calls = 3;  // timed, whatever they take
  double seconds = 0.5;  // for the timed calls of one size, about
};

struct CollectiveTime {
  Collective collective;
  int64_t bytes = 0;      // the whole tensor's, as bytes_sent() counts; what was asked for, rounded up to equal shares
  double seconds = 0;     // from the moment all ranks are ready to the end on the last rank; median
  int calls = 0;          // timed
  bool overlaps = false;  // the call returned before the collective was over
};

// kSend: every rank sends to the next one while it receives from the one before, around the end.
// Called by all ranks, each with the same arguments; every rank gets the same result. f32 tensors on `device`.
CollectiveTime time_collective(Communicator& comm, Collective collective, int64_t bytes, const BenchLimits& limits,
                               Device device = Device::kCpu);

// How many different hosts the ranks are on; all ranks must call it.
int count_hosts(Communicator& comm, Device device = Device::kCpu);

}  // namespace owt

// Times collectives.
#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/communicator.h"

namespace owt {

// All collectives that can be timed. kSend stands for both ends of a message.
std::vector<Collective> all_collectives();

// Bandwidth of a link divided by the bandwidth of the collective (bytes of the whole tensor per second), for a ring. It
// makes the measured rates independent of the number of ranks. Source: nccl-tests, doc/PERFORMANCE.md.
//   all_reduce 2(K-1)/K; all_gather, reduce_scatter, all_to_all (K-1)/K; broadcast, reduce, send 1
double bus_factor(Collective collective, int ranks);

struct BenchLimits {
  int warm_up = 2;       // calls before the timed ones
  int most_calls = 50;   // timed calls
  int fewest_calls = 3;  // timed calls, however long they take
  double seconds = 0.5;  // approximate duration of the timed calls of one size
};

struct CollectiveTime {
  Collective collective;
  int64_t bytes = 0;      // size of the whole tensor, as in bytes_sent(); the requested size rounded up to equal shares
  double seconds = 0;     // median time from the moment all ranks are ready to the end on the last rank
  int calls = 0;          // timed calls
  bool overlaps = false;  // the call returned before the collective ended
};

// kSend: every rank sends to the next one while it receives from the previous one, in a ring. Called by all ranks with
// the same arguments; every rank gets the same result. f32 tensors on `device`.
CollectiveTime time_collective(Communicator& comm, Collective collective, int64_t bytes, const BenchLimits& limits,
                               Device device = Device::kCpu);

// The number of different hosts of the ranks. All ranks must call it.
int count_hosts(Communicator& comm, Device device = Device::kCpu);

}  // namespace owt

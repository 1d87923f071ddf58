// The processes of a launch through MPI. For files of this folder; see processes.h for everyone else.
//
// One thread of the process, the communication thread, makes every call of MPI, and runs collectives one after the
// other while the rest of the process computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/comm/launch.h"
#include "src/comm/lost_ranks.h"

namespace owt {

class Mpi {
 public:
  virtual ~Mpi() = default;  // after finish()
  // Every process's text, by rank; before the first collective only, since nothing can interrupt it. Throws Error where
  // not all have come within `seconds`; its thread then waits on, and neither this nor the LostRanks may ever be freed.
  virtual std::vector<std::string> exchange(const std::string& mine, double seconds) = 0;
  // For tensors on the CPU. The collectives of all communicators of a process go through one queue, so that all of its
  // ranks must call them in the same order, across communicators too. A rank's failure (LostRanks) ends all that are
  // under way and to come. Not to outlive this.
  virtual std::unique_ptr<Communicator> world() = 0;
  // Threads are more than cores on this host: waiting leaves the core to others sooner.
  virtual void set_crowded(bool crowded) = 0;
  // The collective under way or, with "after " in front, the last one; empty before the first.
  virtual std::string place() const = 0;
  // Returns when all have come here. Throws where a rank was lost or has failed meanwhile.
  virtual void meet() = 0;
  // MPI_Finalize, which no loss of a rank ends. False: it has not come back within `seconds`; this may never be freed
  // then.
  virtual bool finish(double seconds) = 0;
};

// Starts MPI. Throws Error: not built; MPI does not find the processes that the launcher has started, or not within
// `seconds`. `lost_ranks` may not be freed after that, as above.
std::unique_ptr<Mpi> start_mpi(const Launch& launch, const LostRanks& lost_ranks, double seconds);

}  // namespace owt

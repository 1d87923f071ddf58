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

struct MpiProcess;

class Mpi {
 public:
  // Starts MPI and shows every process's text to all, before anything can interrupt either. Throws Error: not built;
  // MPI does not find the processes that the launcher has started; it does not come to an end within `seconds` for each
  // of the two. Its thread then waits on, so that `lost_ranks` may never be freed.
  Mpi(const Launch& launch, const LostRanks& lost_ranks, const std::string& text, double seconds);
  ~Mpi();  // after finish()
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  const std::vector<std::string>& texts() const { return *texts_; }  // every process's, by rank
  // For tensors on the CPU. The collectives of all communicators of a process go through one queue, so that all of its
  // ranks must call them in the same order, across communicators too. A rank's failure (LostRanks) ends all that are
  // under way and to come. Not to outlive this. crowded: from now on threads are more than cores on this host, so that
  // waiting leaves the core to others sooner.
  std::unique_ptr<Communicator> world(bool crowded);
  // The same of some of the processes, as the number-th such world, from 1 on: those that are left when others are gone
  // (LostRanks). All of them call it, with the same arguments; nothing travels for it.
  std::unique_ptr<Communicator> world_of(std::vector<int> processes, int number);
  // MPI_Finalize, which no loss of a rank ends. False: it has not come back within `seconds`; this may never be freed
  // then.
  bool finish(double seconds);

 private:
  std::shared_ptr<std::vector<std::string>> texts_;
  std::unique_ptr<MpiProcess> process_;
};

}  // namespace owt

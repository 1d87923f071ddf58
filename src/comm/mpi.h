// The processes of a launch, connected by MPI. For files of this folder; other folders use processes.h.
//
// One thread of the process, the communication thread, makes every MPI call. It runs collectives one after the other
// while the rest of the process computes.
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
  // Starts MPI and gathers every process's `text`; neither can be interrupted. Throws Error if the program was built
  // without MPI, if MPI does not find the processes that the launcher started, or if one of the two takes longer than
  // `seconds`. In the last case its thread keeps waiting, so `lost_ranks` may never be freed.
  Mpi(const ProcessLaunch& launch, const LostRanks& lost_ranks, const std::string& text, double seconds);
  ~Mpi();  // must follow finish()
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  const std::vector<std::string>& texts() const { return *texts_; }  // text of every process, by rank
  // A communicator for tensors on the CPU. The collectives of all communicators of a process share one queue, so all
  // its ranks must call them in the same order, across communicators too. A rank's failure (LostRanks) ends all current
  // and later collectives. Must not outlive this object. crowded: this host has more threads than cores, so that
  // waiting threads yield the core sooner.
  std::unique_ptr<Communicator> world(bool crowded);
  // A communicator of some of the processes, as the number-th such world (from 1): the processes that remain when
  // others are gone (LostRanks). All of them call it with the same arguments; it sends nothing.
  std::unique_ptr<Communicator> world_of(std::vector<int> processes, int number);
  // MPI_Finalize, which is not interrupted by lost ranks. False: it did not return within `seconds`, and this object
  // may never be freed.
  bool finish(double seconds);

 private:
  std::shared_ptr<std::vector<std::string>> texts_;
  std::unique_ptr<MpiProcess> process_;
};

}  // namespace owt

// The processes of a launch, connected by MPI or TCP (links.h). For files of this folder; other folders use
// processes.h.
//
// One thread of the process, the communication thread, uses the links. It runs collectives one after the other while
// the rest of the process computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/comm/launch.h"
#include "src/comm/lost_ranks.h"

namespace owt {

struct ProcessState;

class LinkedProcesses {
 public:
  // Connects the processes and gathers every process's `text`. Throws Error if they do not find each other within
  // `seconds`, or if the program was built without the MPI that it needs. MPI cannot be interrupted: its thread then
  // keeps waiting, so `lost_ranks` may never be freed.
  LinkedProcesses(const ProcessLaunch& launch, const LostRanks& lost_ranks, const std::string& text, double seconds);
  ~LinkedProcesses();  // must follow finish()
  LinkedProcesses(const LinkedProcesses&) = delete;
  LinkedProcesses& operator=(const LinkedProcesses&) = delete;

  const std::vector<std::string>& texts() const { return *texts_; }  // text of every process, by rank
  const char* links() const;                                         // "MPI" or "TCP"
  // A communicator for tensors on the CPU. The collectives of all communicators of a process share one queue, so all
  // its ranks must call them in the same order, across communicators too. A rank's failure (LostRanks) ends all current
  // and later collectives. Must not outlive this object. crowded: this host has more threads than cores, so that
  // waiting threads yield the core sooner.
  std::unique_ptr<Communicator> world(bool crowded);
  // A communicator of some of the processes, as the number-th such world (from 1): the processes that remain when
  // others are gone (LostRanks). All of them call it with the same arguments; it sends nothing.
  std::unique_ptr<Communicator> world_of(std::vector<int> processes, int number);
  // Ends the links, which is not interrupted by lost ranks. False: it did not return within `seconds`, and this object
  // may never be freed.
  bool finish(double seconds);

 private:
  std::shared_ptr<std::vector<std::string>> texts_;
  std::unique_ptr<ProcessState> process_;
};

}  // namespace owt

// The setup of every command that computes, and the ranks it computes on.
#pragma once

#include <functional>
#include <string>

#include "src/comm/communicator.h"
#include "src/train/settings.h"

namespace owt {

class Session {
 public:
  // threads: of all ranks of this host together; 0: as in threads_per_rank() (src/comm/launch.h). Before ranks run, the
  // calling thread has all of them. Throws Error if they cannot be started; warns if they exceed the cores.
  // Convolutions choose their algorithms as the recipe says. If `weights` is a checkpoint file, they begin with the
  // choices of its run, so that results equal that run's evaluation to the last bit.
  Session(const Settings& settings, int threads, const std::string& weights = {});

  // Calls run_ranks() (src/comm/threads.h) on the recipe's device; each rank gets its part of the threads. Warns if
  // this host has more ranks than cores. Throws Error if a GPU cannot run this program in the recipe's precision.
  void run(int ranks, const std::function<void(Communicator&)>& body) const;

 private:
  Compute on_;
  int threads_;
  mutable bool warned_ = false;  // whether the warning about too many threads was given

  void warn_of_crowd(int ranks) const;
};

// Logs why the CPU is used if there was a choice, and a warning if bf16 is slower than fp32 on this CPU.
void log_device(const Settings& settings);

}  // namespace owt

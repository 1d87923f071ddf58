// What every command that computes does first, and the ranks it computes on.
#pragma once

#include <functional>
#include <string>

#include "src/comm/communicator.h"
#include "src/train/settings.h"

namespace owt {

class Session {
 public:
  // threads: of all ranks of this host together; 0: as threads_per_rank() says (src/comm/launch.h). Until ranks run the
  // calling thread has all of them. Throws Error where so many cannot be started; warns where they are more than cores.
  // Convolutions choose their algorithms as the recipe says. Where `weights` is the file of a checkpoint, they start
  // with those of the run that made it, so that the last bits agree with its own evaluation.
  Session(const Settings& settings, int threads, const std::string& weights = {});

  // As run_ranks() (src/comm/threads.h), on the recipe's device, each rank with its part of the threads. Warns where
  // the ranks of this host are more than its cores.
  void run(int ranks, const std::function<void(Communicator&)>& body) const;

 private:
  Device device_;
  int threads_;
  mutable bool warned_ = false;  // that there are more threads than cores

  void warn_of_crowd(int ranks) const;
};

// A line to the log when there was a choice, why it is the CPU; and one where bf16 is slower than fp32 on it.
void log_device(const Settings& settings);

}  // namespace owt

// What every command that computes does first, and the ranks it computes on.
#pragma once

#include <functional>
#include <string>

#include "src/comm/communicator.h"
#include "src/train/settings.h"

namespace owt {

class Session {
 public:
  // threads: of all ranks of this host together; 0: all cores. Until ranks run the calling thread has all of them.
  // Convolutions choose their algorithms as the recipe says. Where `weights` is the file of a checkpoint, they start
  // with those of the run that made it, so that the last bits agree with its own evaluation.
  Session(const Settings& settings, int threads, const std::string& weights = {});

  // As run_ranks() (src/comm/threads.h), on the recipe's device, each rank with its part of the threads.
  void run(int ranks, const std::function<void(Communicator&)>& body) const;

 private:
  Device device_;
  int threads_;
};

// A line to the log when there was a choice, why it is the CPU; and one where bf16 is slower than fp32 on it.
void log_device(const Settings& settings);

}  // namespace owt

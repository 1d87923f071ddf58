// The setup of every command that computes, and the ranks it computes on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/recipe/settings.h"

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

  // Takes the results of batches 0, 1, ... in this order. `ranks` ranks, or one for each batch if there are fewer, make
  // them: rank r batches r, r + ranks, ... worker(r, ranks) is called on the rank's thread and returns the function
  // that makes its next batch. A result must last until the rank makes another one. One rank is the calling thread.
  template <class Result>
  using Make = std::function<Result(int64_t batch)>;
  template <class Result>
  void in_order(int ranks, int64_t batches, const std::function<Make<Result>(int rank, int ranks)>& worker,
                const std::function<void(Result&)>& take) const {
    ranks = static_cast<int>(std::clamp<int64_t>(batches, 1, ranks));
    if (ranks == 1) {
      const Make<Result> make = worker(0, 1);
      for (int64_t batch = 0; batch < batches; ++batch) {
        Result result = make(batch);
        take(result);
      }
      return;
    }
    std::vector<Result> results(static_cast<size_t>(ranks));
    run(ranks, [&](Communicator& comm) {
      const Make<Result> make = worker(comm.rank(), ranks);
      for (int64_t first = 0; first < batches; first += ranks) {
        if (first + comm.rank() < batches) results[static_cast<size_t>(comm.rank())] = make(first + comm.rank());
        wait_for_all(comm);
        for (int64_t i = 0; comm.rank() == 0 && i < std::min<int64_t>(ranks, batches - first); ++i)
          take(results[static_cast<size_t>(i)]);
        wait_for_all(comm);
      }
    });
  }

 private:
  Compute on_;
  int threads_;
  mutable bool warned_ = false;  // whether the warning about too many threads was given

  void warn_of_crowd(int ranks) const;
  void wait_for_all(Communicator& comm) const;  // collective
};

// Logs why the CPU is used if there was a choice, and a warning if bf16 is slower than fp32 on this CPU.
void log_device(const Settings& settings);

}  // namespace owt

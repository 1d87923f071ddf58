// What a rank of a parameter server knows of the other ranks: the results of their steps, which ranks are lost, and
// which have reached meet(). The threads that receive the messages of the others write here, and the rank's own thread
// waits.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "src/plan/step_result.h"

namespace owt {

class StepBoard {
 public:
  using Sums = ResultSums;

  StepBoard(int rank, int ranks);

  // Any thread may call these.
  void note(int rank, const Sums& sums);  // the result of the rank's next step
  void note_lost(int rank);               // no more messages of the rank will arrive
  void note_met(int rank);                // the rank has reached meet(); for rank 0: it has also sent the lost ranks
  void note_without(int gone);            // rank 0 has sent that this rank is lost, which it does before its note_met
  // Makes waiting functions throw Aborted; only the first failure is kept.
  void fail_with(const std::exception_ptr& failure);
  void rethrow_failure() const;  // if there is one

  // Called by the rank's own thread. Returns the sums over all ranks of the oldest step not returned yet. Waits until
  // all remaining ranks have sent them.
  Sums take_sums();
  // On rank 0, waits until all remaining ranks have reached meet(). On the others, waits until rank 0 has sent the lost
  // ranks and no more messages of those can arrive. Returns the lost ranks.
  std::vector<int> meet();

 private:
  // The results of one step, by rank.
  using Step = std::vector<std::optional<Sums>>;

  bool is_here(int rank) const { return !gone_[static_cast<size_t>(rank)]; }
  bool have_reported(const Step& step) const;
  bool have_met() const;
  template <class Condition>
  void await(std::unique_lock<std::mutex>& lock, const Condition& condition);

  const int rank_, ranks_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable heard_;
  std::map<int64_t, Step> steps_;
  std::vector<int64_t> received_;  // number of results received, by rank
  std::vector<char> gone_;         // index: rank
  std::vector<char> met_;          // index: rank
  std::vector<int> without_;       // lost ranks, as decided by rank 0 in meet()
  std::exception_ptr failure_;
  int64_t taken_ = 0;  // number of steps whose sums were returned
};

}  // namespace owt

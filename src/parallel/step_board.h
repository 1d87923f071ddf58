// What a rank of a parameter server hears of the others: what each has told of its steps, who is gone, and who has come
// to where all meet. The threads that take the messages of the others write here, and the rank's own thread waits.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "src/parallel/step_result.h"

namespace owt {

class StepBoard {
 public:
  using Sums = std::array<double, kStepSums>;

  StepBoard(int rank, int ranks);

  // By any thread.
  void note(int rank, const Sums& sums);              // of its next step
  void note_lost(int rank);                           // nothing of it comes any more
  void note_met(int rank);                            // it has come to meet(); of rank 0: that has said who is gone
  void note_without(int gone);                        // rank 0 has said so, which it does before it has met
  void fail_with(const std::exception_ptr& failure);  // what waits here throws Aborted; the first failure stays
  void rethrow_failure() const;                       // if there is one

  // By the rank's own thread. The sums over all ranks of the oldest step that was not asked for: waits until all that
  // are here have told them.
  Sums take_sums();
  // Waits until all that are here have come to meet, on rank 0; until rank 0 has said who is gone, on the others, and
  // nothing of those comes any more. These ranks.
  std::vector<int> meet();

 private:
  // What all have told of a step, by rank.
  using Step = std::vector<std::optional<Sums>>;

  bool is_here(int rank) const { return !gone_[static_cast<size_t>(rank)]; }
  bool have_told(const Step& step) const;
  bool have_met() const;
  template <class Condition>
  void await(std::unique_lock<std::mutex>& lock, const Condition& condition);

  const int rank_, ranks_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable heard_;
  std::map<int64_t, Step> steps_;
  std::vector<int64_t> told_;  // steps, by rank
  std::vector<char> gone_;     // by rank
  std::vector<char> met_;      // by rank
  std::vector<int> without_;   // those whose loss rank 0 has seen where all met
  std::exception_ptr failure_;
  int64_t taken_ = 0;  // steps whose sums were asked for
};

}  // namespace owt

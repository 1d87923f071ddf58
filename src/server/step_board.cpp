#include "src/server/step_board.h"

#include <algorithm>

#include "src/comm/communicator.h"
#include "src/system/activity.h"

namespace owt {

StepBoard::StepBoard(int rank, int ranks)
    : rank_(rank),
      ranks_(ranks),
      received_(static_cast<size_t>(ranks)),
      gone_(static_cast<size_t>(ranks)),
      met_(static_cast<size_t>(ranks)) {}

void StepBoard::note(int rank, const Sums& sums) {
  const std::lock_guard lock(mutex_);
  Step& step = steps_[received_[static_cast<size_t>(rank)]++];
  step.resize(static_cast<size_t>(ranks_));
  step[static_cast<size_t>(rank)] = sums;
  heard_.notify_all();
}

void StepBoard::note_lost(int rank) {
  const std::lock_guard lock(mutex_);
  gone_[static_cast<size_t>(rank)] = true;
  heard_.notify_all();
}

void StepBoard::note_met(int rank) {
  const std::lock_guard lock(mutex_);
  met_[static_cast<size_t>(rank)] = true;
  heard_.notify_all();
}

void StepBoard::note_without(int gone) {
  const std::lock_guard lock(mutex_);
  without_.push_back(gone);
}

void StepBoard::fail_with(const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
  heard_.notify_all();
}

void StepBoard::rethrow_failure() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

template <class Condition>
void StepBoard::await(std::unique_lock<std::mutex>& lock, const Condition& condition) {
  const Waits waits(WaitsFor::kOthers);
  heard_.wait(lock, [&] { return failure_ || condition(); });
  if (failure_) throw Aborted("another rank failed");
}

bool StepBoard::have_reported(const Step& step) const {
  for (int r = 0; r < ranks_; ++r)
    if (is_here(r) && (step.empty() || !step[static_cast<size_t>(r)])) return false;
  return true;
}

// Results that a rank sent before it was lost count.
StepBoard::Sums StepBoard::take_sums() {
  std::unique_lock lock(mutex_);
  Step& step = steps_[taken_];
  await(lock, [&] { return have_reported(step); });
  Sums sums{};
  for (const auto& each : step)
    for (size_t i = 0; each && i < sums.size(); ++i) sums[i] += (*each)[i];
  steps_.erase(taken_++);
  return sums;
}

bool StepBoard::have_met() const {
  if (rank_ != 0) return met_[0] != 0;
  for (int r = 1; r < ranks_; ++r)
    if (is_here(r) && !met_[static_cast<size_t>(r)]) return false;
  return true;
}

std::vector<int> StepBoard::meet() {
  std::unique_lock lock(mutex_);
  await(lock, [&] { return have_met(); });
  std::ranges::fill(met_, 0);
  for (int r = 0; rank_ == 0 && r < ranks_; ++r)
    if (!is_here(r)) without_.push_back(r);
  await(lock, [&] { return std::ranges::none_of(without_, [&](int r) { return is_here(r); }); });
  return without_;
}

}  // namespace owt

#include "src/plan/beside_trial.h"

#include <algorithm>

#include "src/core/profiler.h"
#include "src/system/log.h"

namespace owt {

bool BesideTrial::next() {
  if (!over_ && started_ == kMostSteps) choose();
  if (over_) return beside_;
  return started_++ / in_flight_ % 2 == 0;
}

bool BesideTrial::add(bool beside, double ms) {
  if (over_) return false;
  times_[beside ? 1 : 0].push_back(ms);
  if (std::ranges::all_of(times_, [](const auto& times) { return times.size() >= kTimesOfEach; })) choose();
  return over_;
}

void BesideTrial::choose() {
  over_ = true;
  const auto& [behind, beside] = times_;
  beside_ = behind.empty() || beside.empty() || median(beside) <= median(behind);
}

std::string BesideTrial::text() const {
  return format("dense layers are updated {} the backward pass: {:.3f} ms a step, {} it {:.3f} ms",
                beside_ ? "during" : "after", median(times_[beside_ ? 1 : 0]), beside_ ? "after" : "during",
                median(times_[beside_ ? 0 : 1]));
}

}  // namespace owt

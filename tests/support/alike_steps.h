// Times of ranks whose steps are all equal.
#pragma once

#include <algorithm>
#include <vector>

#include "src/train/rank_times.h"

namespace owt {

inline StepTimes alike_steps(const std::vector<RankTimes>& ranks) {
  const auto busier = [](const RankTimes& a, const RankTimes& b) { return a.busy_ms() < b.busy_ms(); };
  return {.medians = ranks, .middle = ranks, .longest = *std::max_element(ranks.begin(), ranks.end(), busier)};
}

}  // namespace owt

// Detects ranks that should hold the same weights but do not, because of a fault in memory, a link or a library.
#pragma once

#include <cstdint>
#include <string>

#include "src/plan/groups.h"
#include "src/plan/rank_model.h"

namespace owt {

// Collective. Compares hashes of every parameter over the ranks that hold the same values: all ranks for the front
// part, replicas for the back part. Throws Error on all ranks of the group, with step, parameter and the first
// differing rank. The message ends with `how_to_resume`. The host waits.
void check_equality(const Plan& plan, RankModel& model, const Groups& groups, int64_t step,
                    const std::string& how_to_resume);

}  // namespace owt

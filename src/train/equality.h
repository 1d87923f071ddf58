// Finds out when ranks that should hold the same weights do not: a fault of memory, of a link, or of a library.
#pragma once

#include <cstdint>
#include <string>

#include "src/parallel/groups.h"
#include "src/parallel/rank_model.h"

namespace owt {

// Collective. Compares hashes of every parameter over the ranks that hold the same values of it: of the layers before
// the boundary all ranks, of the parts behind it their replicas. Throws Error on all of a group, naming step, parameter
// and the first rank that differs from its group's first, and ending with `how_to_go_on`, which is the caller's to
// know. The host waits.
void check_equality(const Plan& plan, RankModel& model, const Groups& groups, int64_t step,
                    const std::string& how_to_go_on);

}  // namespace owt

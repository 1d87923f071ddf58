// Gives ranks that hold the same weights the same initial bits.
#pragma once

#include "src/plan/groups.h"
#include "src/plan/rank_model.h"

namespace owt {

// Collective: every rank takes rank 0's weights of the front part, and the back part's weights from the first of its
// replicas. Weights drawn on each rank could differ, because C libraries round logarithms and cosines differently, and
// nothing would make the copies equal again. The host waits.
void spread_weights(RankModel& model, const Groups& groups);

}  // namespace owt

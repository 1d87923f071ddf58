// Ranks that hold the same weights begin with the same bits.
#pragma once

#include "src/parallel/groups.h"
#include "src/parallel/rank_model.h"

namespace owt {

// Collective: every rank takes rank 0's weights before the boundary, and behind it those of the first of its replicas.
// Drawn on each rank by itself they could differ: another C library rounds a logarithm or a cosine otherwise, and
// nothing would ever bring the copies together again. The host waits.
void spread_weights(RankModel& model, const Groups& groups);

}  // namespace owt

// The mirror of a run whose workers may change (src/mirror/mirror.h), from the plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/plan.h"

namespace owt {

struct MirrorNeed {
  int64_t sent_bytes = 0;  // in a renewal
  int64_t held_bytes = 0;  // host memory of the copies, from the second renewal on
};

std::vector<MirrorNeed> mirror_needs(const Plan& plan);  // by rank; not for parameter servers

// For people, with PlanRequest::mirror_every: "every 50 steps a worker sends at most 1.25 MB (0.0250 MB a step), and
// its copies take 8.00 MB of host memory". Each figure is of the rank with the most.
std::string mirror_text(const Plan& plan);

}  // namespace owt

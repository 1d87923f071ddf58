// What the planner says to a step that was measured: whether another strategy is predicted to be faster, and what the
// links should need.
#pragma once

#include <optional>
#include <string>

#include "src/net/model.h"
#include "src/parallel/network.h"
#include "src/parallel/plan.h"
#include "src/train/bottleneck.h"
#include "src/train/rank_times.h"

namespace owt {

// The links as the transfers of a step saw them: the latency that of the few bytes of its result, the rate that of the
// transfer with the most bytes. None where they cannot tell: one rank, links of two kinds (several hosts with several
// ranks each), nothing that was timed by itself.
std::optional<Network> network_seen(const Plan& plan, const StepTimes& times);

// "Try --parallel owt-d (predicted 40.0 ms)." where a strategy is predicted to take at most 90 % of this step, both as
// it was measured and as it is predicted by the same figures: what the layers took here, and the network. Empty: there
// is none, or not enough is known.
std::string advice(const Model& model, const Plan& plan, const StepTimes& times, const Network& network);

// What bounds the step, with the advice; none where a rank is slow. links: as they were measured by themselves; without
// them those of network_seen() advise.
Bottleneck explain_step(const Model& model, const Plan& plan, const StepTimes& times,
                        const std::optional<Network>& links = {});

}  // namespace owt

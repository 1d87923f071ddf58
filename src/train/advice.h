// The planner's advice on a measured step: whether another strategy is predicted to be faster, and how long the links
// should take.
#pragma once

#include <optional>
#include <string>

#include "src/net/model.h"
#include "src/plan/plan.h"
#include "src/predict/network.h"
#include "src/train/bottleneck.h"
#include "src/train/rank_times.h"

namespace owt {

// The links as seen in the transfers of a step: the latency from the small step result, the rate from the transfer with
// the most bytes. Nothing if the links cannot be determined: one rank, two kinds of link (several hosts with several
// ranks each), or no transfer with a duration of its own.
std::optional<Network> network_seen(const Plan& plan, const StepTimes& times);

// "Try --parallel owt-d (predicted 40.0 ms)." if a strategy is predicted to take at most 90 % of this step, both as
// measured and as predicted from the same layer times and network. Empty: there is none, or too little is known.
std::string advice(const Model& model, const Plan& plan, const StepTimes& times, const Network& network);

// What limits the step, with the advice; no advice if a rank is slow. links: measured separately; without them the
// advice uses network_seen().
Bottleneck explain_step(const Model& model, const Plan& plan, const StepTimes& times,
                        const std::optional<Network>& links = {});

}  // namespace owt

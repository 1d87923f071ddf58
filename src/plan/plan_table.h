// A plan as text, for people.
#pragma once

#include <string>
#include <vector>

#include "src/plan/plan.h"

namespace owt {

std::string boundary_name(const Plan& plan);          // name of the first layer of the back part
std::string place_name(const Plan& plan, int place);  // "stage 2", if the places of a model group differ
// Whether the strategy asked for has nothing to split, and why; empty: it has.
std::string unsplit_text(const Plan& plan);
std::vector<std::string> plan_notes(const Plan& plan);  // for the log of a run's start
// "frozen: conv1, conv2; 0.20 M of 1.30 M parameters are trained"; empty: no layer is frozen.
std::string frozen_text(const Plan& plan);
std::string plan_table(const Plan& plan);  // printed by `owt plan`

}  // namespace owt

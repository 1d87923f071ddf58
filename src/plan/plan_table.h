// A plan as text, for people.
#pragma once

#include <string>

#include "src/plan/plan.h"

namespace owt {

std::string boundary_name(const Plan& plan);  // name of the first layer of the back part
// "frozen: conv1, conv2; 0.20 M of 1.30 M parameters are trained"; empty: no layer is frozen.
std::string frozen_text(const Plan& plan);
std::string plan_table(const Plan& plan);  // printed by `owt plan`

}  // namespace owt

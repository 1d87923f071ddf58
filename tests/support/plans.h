// Plans of models that are given as text, and their contents by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/plan/plan.h"
#include "src/system/check.h"
#include "tests/support/models.h"

namespace owt {

inline Plan plan_of(const std::string& toml, const PlanRequest& request) { return make_plan(model_of(toml), request); }

inline const LayerPlan& layer(const Plan& plan, const std::string& name) {
  for (const LayerPlan& at : plan.layers)
    if (at.name == name) return at;
  fail("no layer ", name);
}

// Bytes by the transfer's name.
inline std::map<std::string, int64_t> bytes_of(const Plan& plan) {
  std::map<std::string, int64_t> bytes;
  for (const Transfer& transfer : plan.transfers) bytes[transfer.name] = transfer.bytes;
  return bytes;
}

inline const Transfer& transfer(const Plan& plan, const std::string& name) {
  for (const Transfer& t : plan.transfers)
    if (t.name == name) return t;
  fail("no transfer ", name);
}

}  // namespace owt

// The families of strategies. Each has a file in src/plan/strategies with its entries of the table (strategy.h), its
// orders, its transfers, and all else that only it knows.
#pragma once

#include <vector>

#include "src/plan/strategy.h"

namespace owt {

// The table consists of these entries, in the order of enum Strategy.
std::vector<StrategyFacts> data_parallel_family();
std::vector<StrategyFacts> server_family();
std::vector<StrategyFacts> one_weird_trick_family();
std::vector<StrategyFacts> model_parallel_family();
std::vector<StrategyFacts> pipeline_family();

// For checks: throws Error if norms of all gradients of a step are needed, or if a layer needs sums over all its rows.
// why: "but ..."
void refuse_norms(const Plan& plan, const std::string& why);
void refuse_step_sums(const Plan& plan, const std::string& why);
// Throws Error if the bits must not depend on the ranks (core/canonical.h). why: a sentence
void refuse_canonical(const Plan& plan, const std::string& why);

}  // namespace owt

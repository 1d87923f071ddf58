#include "src/plan/strategy.h"

#include <algorithm>
#include <deque>
#include <iterator>

#include "src/plan/strategy_families.h"
#include "src/system/check.h"
#include "src/system/config.h"

namespace owt {
namespace {

// A deque, so that references to entries stay valid when another one is added.
std::deque<StrategyFacts>& table() {
  static std::deque<StrategyFacts> strategies = [] {
    std::deque<StrategyFacts> all;
    for (const auto family :
         {data_parallel_family, server_family, one_weird_trick_family, model_parallel_family, pipeline_family})
      std::ranges::move(family(), std::back_inserter(all));
    return all;
  }();
  return strategies;
}

}  // namespace

const StrategyFacts& facts_of(Strategy strategy) { return table().at(static_cast<size_t>(strategy)); }

Strategy add_strategy(StrategyFacts facts) {
  const std::vector<std::string> known = strategy_names();
  OWT_CHECK(std::find(known.begin(), known.end(), facts.name) == known.end(), "there is a strategy ", facts.name);
  OWT_CHECK(facts.order != nullptr);
  OWT_CHECK(facts.transfers != one_weird_trick_transfers || (facts.updates == Updates::kAll && !facts.shares_rows),
            facts.name, " needs transfers of its own");
  table().push_back(std::move(facts));
  return static_cast<Strategy>(table().size() - 1);
}

const char* name_of(Strategy strategy) { return facts_of(strategy).name.c_str(); }

bool splits_dense(Strategy strategy) { return facts_of(strategy).splits_dense; }

std::vector<Strategy> all_strategies() {
  std::vector<Strategy> all;
  for (size_t i = 0; i < table().size(); ++i) all.push_back(static_cast<Strategy>(i));
  return all;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const StrategyFacts& facts : table()) names.push_back(facts.name);
  return names;
}

std::string strategy_list() {
  std::string list;
  for (const StrategyFacts& facts : table()) list += (list.empty() ? "" : " | ") + facts.name;
  return list;
}

std::string averaging_strategies() {
  std::string list;
  for (const StrategyFacts& facts : table())
    if (facts.can_average) list += (list.empty() ? "" : ", ") + facts.name;
  return list;
}

Strategy strategy_from(const std::string& name) {
  for (const Strategy strategy : all_strategies())
    if (name == name_of(strategy)) return strategy;
  const std::string near = nearest(name, strategy_names());
  fail("no strategy '", name, "' (there are ", joined(strategy_names()), ")",
       near.empty() ? "" : concat("; did you mean '", near, "'?"));
}

}  // namespace owt

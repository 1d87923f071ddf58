#include "src/plan/strategy.h"

#include <algorithm>
#include <deque>

#include "src/core/check.h"
#include "src/core/config.h"
#include "src/plan/strategy_orders.h"

namespace owt {
namespace {

// A deque, so that references to entries stay valid when another one is added.
std::deque<StrategyFacts>& table() {
  static std::deque<StrategyFacts> strategies{
      {.name = "dp",
       .help = "every worker has all weights; gradients are summed",
       .can_average = true,
       .order = data_parallel},
      {.name = "dp-zero",
       .help =
           "as dp, but each worker updates a shard of the weights and keeps the optimizer's state only for that shard",
       .updates = Updates::kShares,
       .order = updates_in_shares},
      {.name = "dp-star",
       .help = "as dp, but worker 0 receives all gradients, updates the weights and sends them to every other worker",
       .updates = Updates::kFirst,
       .order = updates_in_shares},
      {.name = "ps",
       .help = "every worker serves a shard of the weights; the others push gradients to it and pull weights from it; "
               "see [ps]",
       .updates = Updates::kServers,
       .order = parameter_server},
      {.name = "owt-a",
       .help = "dense layers are split; one round has the rows of all workers",
       .rounds = Rounds::kAllRows,
       .splits_dense = true,
       .can_average = true,
       .order = one_weird_trick},
      {.name = "owt-b",
       .help = "dense layers are split; each round has the rows of one worker",
       .rounds = Rounds::kOneRanks,
       .splits_dense = true,
       .can_average = true,
       .order = one_weird_trick},
      {.name = "owt-c",
       .help = "dense layers are split; each round has a part of every worker's rows",
       .rounds = Rounds::kAPartOfEach,
       .splits_dense = true,
       .can_average = true,
       .order = one_weird_trick},
      {.name = "owt-d",
       .help = "as owt-a, but sends columns instead of rows, and sums of outputs instead of inputs, where that is less",
       .rounds = Rounds::kAllRows,
       .splits_dense = true,
       .by_inputs = true,
       .can_average = true,
       .order = one_weird_trick},
      {.name = "mp",
       .help = "dense layers and convolutions are split by their outputs; every worker computes all rows",
       .splits_dense = true,
       .splits_channels = true,
       .shares_rows = true,
       .order = model_parallel},
      {.name = "mp-dense",
       .help = "dense layers are split; every worker computes the layers before them for all rows",
       .splits_dense = true,
       .shares_rows = true,
       .order = model_parallel},
      {.name = "pipeline",
       .help =
           "each worker has a stage, a run of successive layers; micro-batches pass through all stages; see [pipeline]",
       .rounds = Rounds::kMicroBatches,
       .shares_rows = true,
       .in_stages = true,
       .order = pipeline}};
  return strategies;
}

}  // namespace

const StrategyFacts& facts_of(Strategy strategy) { return table().at(static_cast<size_t>(strategy)); }

Strategy add_strategy(StrategyFacts facts) {
  const std::vector<std::string> known = strategy_names();
  OWT_CHECK(std::find(known.begin(), known.end(), facts.name) == known.end(), "there is a strategy ", facts.name);
  OWT_CHECK(facts.order != nullptr);
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

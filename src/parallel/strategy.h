// The strategies: ways to train one network on several ranks. Each is a line of the table in strategy.cpp and a
// function in order.cpp, and is asked by its facts everywhere else.
#pragma once

#include <string>
#include <vector>

namespace owt {

class StepOrder;

// Places in the table. Others may be added behind them, by add_strategy().
enum class Strategy {
  kDataParallel,
  kDataParallelZero,
  kDataParallelStar,
  kParameterServer,
  kOwtA,
  kOwtB,
  kOwtC,
  kOwtD,
  kModelParallel,
  kModelParallelDense,
  kPipeline
};
constexpr Strategy kDefaultStrategy = Strategy::kOwtA, kPlainDataParallel = Strategy::kDataParallel;

// What one batch of the dense layers is made of, where they are split.
enum class Rounds {
  kOwnRows,      // each rank's own rows, in the only round
  kAllRows,      // every rank's rows, in the only round
  kOneRanks,     // one rank's rows, in as many rounds as ranks
  kAPartOfEach,  // the first, the second ... part of every rank's rows, in as many rounds as ranks
  kMicroBatches  // parts of the rows that all ranks of a group have, as many as the plan says
};

// Who updates the weights that all ranks have.
enum class Updates {
  kAll,     // every rank all of them
  kShares,  // each rank a share, as long as the others'
  kFirst,   // the first rank all of them, for the others
  kServers  // each rank a share, as long as the others', by gradients that come one by one (parameter_server.h)
};

struct StrategyFacts {
  std::string name;
  std::string help;  // half a sentence
  Rounds rounds = Rounds::kOwnRows;
  bool splits_dense = false;     // dense layers are split over the ranks of a model group
  bool splits_channels = false;  // and convolutions are, by the channels of what they give
  bool shares_rows = false;      // all ranks of a model group have the same rows
  bool in_stages = false;        // each rank of a model group has a run of layers, whole
  bool by_inputs = false;        // a dense layer is split by inputs where that sends less (DenseSplit::kOfStrategy)
  Updates updates = Updates::kAll;
  // Ranks may update their copies of the weights before the boundary each by itself, and average them every so many
  // steps (PlanRequest::average_every): the order ends with average_front().
  bool can_average = false;
  void (*order)(StepOrder& step) = nullptr;

  bool splits() const { return splits_dense || in_stages; }  // there are model groups of several ranks
};

const StrategyFacts& facts_of(Strategy strategy);
// Before any plan is made with it. The name must be new.
Strategy add_strategy(StrategyFacts facts);

const char* name_of(Strategy strategy);
Strategy strategy_from(const std::string& name);  // throws Error with the list of names
bool splits_dense(Strategy strategy);
std::vector<Strategy> all_strategies();
std::vector<std::string> strategy_names();
std::string strategy_list();         // "dp | dp-zero | ..."
std::string averaging_strategies();  // "dp, owt-a, ...": those that can_average

}  // namespace owt

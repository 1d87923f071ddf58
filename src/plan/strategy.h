// The strategies: ways to train one network on several ranks. Each is an entry of facts and functions in
// src/plan/strategies. All other code asks the plan, which asks the entry.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace owt {

class Layer;
class StepOrder;
class TransferList;
struct Plan;

// Indexes into the table of entries. add_strategy() appends further strategies.
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

// Which rows make up one batch of the dense layers, if they are split.
enum class Rounds {
  kOwnRows,      // each rank's own rows, in the only round
  kAllRows,      // every rank's rows, in the only round
  kOneRanks,     // one rank's rows per round, in as many rounds as ranks
  kAPartOfEach,  // an equal part of every rank's rows per round, in as many rounds as ranks
  kEqualParts    // equal parts of the rows that all ranks of a group have; the plan has their number
};

// The ranks that update weights of which all ranks have a copy.
enum class Updates {
  kAll,     // every rank updates all weights
  kShares,  // each rank updates a shard, all of equal size
  kFirst,   // the first rank updates all weights, for the other ranks
  kServers  // each rank updates a shard of equal size with gradients that are pushed one by one (parameter_server.h)
};

// What an entry does by default (split_layers.cpp): it splits dense layers if its facts say so, and gathers the rows of
// each round at the boundary.
void split_layers(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers);
void one_weird_trick_transfers(TransferList& list);

struct StrategyFacts {
  std::string name;
  std::string help;  // half a sentence for --help
  Rounds rounds = Rounds::kOwnRows;
  bool splits_dense = false;     // dense layers are split over the ranks of a model group
  bool splits_channels = false;  // convolutions are split too, by output channels
  bool shares_rows = false;      // all ranks of a model group have the same rows
  bool by_inputs = false;        // a dense layer is split by inputs if that sends less (DenseSplit::kOfStrategy)
  Updates updates = Updates::kAll;
  // Whether its order begins with start_labels(), so that every rank knows all labels of a step.
  bool gathers_labels = false;
  // Whether ranks may update their own copies of the front part's weights and average them from time to time
  // (PlanRequest::average_every). The order must then end with average_front().
  bool can_average = false;
  bool can_accumulate = true;  // steps may consist of micro-batches (PlanRequest::slices)
  bool cpu_only = false;       // plans can be made for GPUs, but not run there
  bool for_auto = true;        // `auto` may choose it
  void (*order)(StepOrder& step) = nullptr;
  // Sets the boundary with layouts and parts of the layers after it, or the stages. The plan has described the layers.
  void (*place)(Plan& plan, const std::vector<std::unique_ptr<Layer>>& layers) = split_layers;
  void (*transfers)(TransferList& list) = one_weird_trick_transfers;
  // Optional. Throws Error, with a cure, if the strategy does not go together with another setting of the request.
  void (*check)(const Plan& plan) = nullptr;
  // Optional. A line for the log of a run's start, and one for the table of `owt plan`; empty: none.
  std::string (*note)(const Plan& plan) = nullptr;
  std::string (*headline)(const Plan& plan) = nullptr;

  bool splits() const { return splits_dense || shares_rows; }  // model groups have several ranks
};

const StrategyFacts& facts_of(Strategy strategy);
// Adds a strategy; call it before any plan uses it. The name must be new.
Strategy add_strategy(StrategyFacts facts);

const char* name_of(Strategy strategy);
Strategy strategy_from(const std::string& name);  // throws Error with the list of names
bool splits_dense(Strategy strategy);
std::vector<Strategy> all_strategies();
std::vector<std::string> strategy_names();
std::string strategy_list();         // "dp | dp-zero | ..."
std::string averaging_strategies();  // the strategies with can_average: "dp, owt-a, ..."

}  // namespace owt

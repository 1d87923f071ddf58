// Chooses the strategy with the shortest predicted step, and gives the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/predict/step_price.h"

namespace owt {

// A candidate that cannot run the model, or is equivalent to another one.
struct Refusal {
  std::string name, why;
};

struct Choice {
  std::vector<Prediction> all;  // every distinct candidate, in the order of strategy_names()
  size_t best = 0;              // index of the shortest step time, the first among equals
  std::vector<Refusal> refused{};

  const Prediction& chosen() const { return all[best]; }
  // The fastest candidate that splits dense layers, and the fastest that splits nothing; null if there is none.
  const Prediction* best_split() const;
  const Prediction* best_data_parallel() const;
  std::string reason() const;  // a sentence or two: the best candidate, compared with the best of the other kind
  std::string table() const;   // one line per candidate
  // The candidates in order of speed, each with a bar of its step in the rest of this number of columns, and the
  // refused ones. Bars consist of Unicode blocks, or of ASCII characters.
  std::string comparison(int columns, bool unicode) const;
};

// The plan, or nothing; `why` then receives the error of make_plan().
std::optional<Plan> plan_if_possible(const Model& model, const PlanRequest& request, std::string& why);

// The request with every strategy and, for each, with possible numbers of model ranks. That is the requested number if
// there is one; else all ranks and, if a host has several ranks, the ranks of a host. The request's own strategy is
// ignored. The candidates may include plans that cannot run the model.
std::vector<PlanRequest> candidates(const PlanRequest& request, const Network& network);

// Predicts every candidate that can run. `auto` is chosen().request of the result. Throws Error if no candidate can
// run, or if the ranks cannot be divided into groups.
Choice choose_strategy(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute);

// More rows per step increase activations but not gradients, so from some batch on, splitting nothing is faster.
// Returns the smallest such number of rows, a multiple of the ranks. 0: none up to `most_rows`, or nothing to split.
int64_t crossover_rows(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute, int64_t most_rows = int64_t{1} << 24);
// The same, comparing only the bytes sent by the request's own strategy and by dp.
int64_t crossover_rows_by_bytes(const Model& model, const PlanRequest& request, int64_t most_rows = int64_t{1} << 24);

}  // namespace owt

// Which strategy takes the least time, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/parallel/step_price.h"

namespace owt {

struct Choice {
  std::vector<Prediction> all;  // of every candidate that differs, in the order of strategy_names()
  size_t best = 0;              // the first of those with the least step time

  const Prediction& chosen() const { return all[best]; }
  // The best of those that split dense layers, and of those that split nothing; null where there is none.
  const Prediction* best_split() const;
  const Prediction* best_data_parallel() const;
  std::string reason() const;  // a sentence or two: the best, against the best of the other kind
  std::string table() const;   // a line for each candidate
};

// The request with every strategy, and with each as many ranks to a copy of the split layers as it asks for: where it
// does not say, all, and where a host holds several ranks, those of a host. Its own strategy does not count.
std::vector<PlanRequest> candidates(const PlanRequest& request, const Network& network);

// Predicts every candidate. `auto` is this function's chosen().request.
Choice choose_strategy(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute);

// Steps of more rows make activations heavier and leave gradients as they are, so that some batch on splitting nothing
// is faster. The smallest such number of rows, a multiple of the ranks; 0: none up to `most_rows`, or nothing to split.
int64_t crossover_rows(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute, int64_t most_rows = int64_t{1} << 24);
// The same by bytes sent alone, whatever the links, of the request's own strategy against dp.
int64_t crossover_rows_by_bytes(const Model& model, const PlanRequest& request, int64_t most_rows = int64_t{1} << 24);

}  // namespace owt

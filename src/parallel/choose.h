// Which strategy takes the least time, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/parallel/step_price.h"

namespace owt {

// A candidate that cannot run the model, or is nothing of its own there.
struct Refusal {
  std::string name, why;
};

struct Choice {
  std::vector<Prediction> all;  // of every candidate that differs, in the order of strategy_names()
  size_t best = 0;              // the first of those with the least step time
  std::vector<Refusal> refused{};

  const Prediction& chosen() const { return all[best]; }
  // The best of those that split dense layers, and of those that split nothing; null where there is none.
  const Prediction* best_split() const;
  const Prediction* best_data_parallel() const;
  std::string reason() const;  // a sentence or two: the best, against the best of the other kind
  std::string table() const;   // a line for each candidate
  // The same, the fastest first, each with a bar of its step in what is left of so many columns, and all that were
  // refused. Bars are blocks of Unicode, or ASCII.
  std::string comparison(int columns, bool unicode) const;
};

// The plan; or nothing, and in `why` what make_plan() says against it.
std::optional<Plan> plan_if_possible(const Model& model, const PlanRequest& request, std::string& why);

// The request with every strategy, and with each as many ranks to a copy of the split layers as it asks for: where it
// does not say, all, and where a host holds several ranks, those of a host. Neither its own strategy counts, nor
// whether the model can be run so.
std::vector<PlanRequest> candidates(const PlanRequest& request, const Network& network);

// Predicts every candidate that can run. `auto` is this function's chosen().request. Throws Error where none can, and
// for ranks that make no groups.
Choice choose_strategy(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute);

// Steps of more rows make activations heavier and leave gradients as they are, so that some batch on splitting nothing
// is faster. The smallest such number of rows, a multiple of the ranks; 0: none up to `most_rows`, or nothing to split.
int64_t crossover_rows(const Model& model, const PlanRequest& request, const Network& network,
                       const ComputeModel& compute, int64_t most_rows = int64_t{1} << 24);
// The same by bytes sent alone, whatever the links, of the request's own strategy against dp.
int64_t crossover_rows_by_bytes(const Model& model, const PlanRequest& request, int64_t most_rows = int64_t{1} << 24);

}  // namespace owt

#include "src/plan/plan_rows.h"

#include <algorithm>

#include "src/core/row_groups.h"

namespace owt {

StepRows rows_of(const Plan& plan, int64_t step_rows) {
  return {rounds_strategy(plan),      plan.ranks(),        step_rows,
          plan.model_ranks,           plan.request.shares, equal_parts_in(plan, step_rows),
          slices_in(plan, step_rows), row_group(plan, 0),  row_group(plan, plan.boundary)};
}

Strategy rounds_strategy(const Plan& plan) {
  const bool rows_are_shared = plan.front_layout() == Layout::kReplicated;
  return plan.split() || rows_are_shared ? plan.request.strategy : kPlainDataParallel;
}

int64_t row_group(const Plan& plan, int64_t first_layer) {
  int64_t group = std::max<int64_t>(1, plan.request.on.canonical_rows);
  for (int64_t i = first_layer; i < std::ssize(plan.layers); ++i) group = common_group(group, plan.layer(i).row_group);
  return group;
}

int slices_in(const Plan& plan, int64_t step_rows) {
  const PlanRequest& full = plan.request;
  if (full.slices == 1) return 1;
  return static_cast<int>(std::max<int64_t>(1, (step_rows * full.slices + full.step_rows - 1) / full.step_rows));
}

int64_t most_slices(const Plan& plan) {
  if (!acting_strategy(plan).can_accumulate) return 1;
  return RowGroups{rows_of(plan, plan.request.step_rows).most(), row_group(plan, 0)}.count();
}

LayerRows layer_rows(const Plan& plan, int64_t layer, int64_t step_rows) {
  const StepRows step = rows_of(plan, step_rows);
  if (layer < plan.boundary) return {step.of(0).size(), step.slice(0).of(0).size()};
  LayerRows rows;
  for (const StepRows::RoundSize& round : step.round_sizes(0)) {
    rows.total += round.rows;
    rows.at_once = std::max(rows.at_once, round.rows);
  }
  return rows;
}

std::vector<int64_t> round_rows(const Plan& plan, const StepRows& step) {
  std::vector<int64_t> all(static_cast<size_t>(step.count_rounds()));
  for (int replica = 0; replica < (plan.split() ? plan.replicas() : 1); ++replica) {
    const std::vector<StepRows::RoundSize> sizes = step.round_sizes(replica * plan.model_ranks);
    for (size_t r = 0; r < all.size(); ++r) all[r] += sizes[r].rows;
  }
  return all;
}

LabelGroup label_group(const Plan& plan, const StepRows& rows, int rank) {
  LabelGroup all{Group::kModel, rank / plan.model_ranks * plan.model_ranks, plan.model_ranks, rows.most_beside(rank)};
  if (!plan.request.loss.samples()) return all;
  all = {Group::kWorld, 0, plan.ranks(), 0};
  for (int first = 0; first < all.ranks; first += plan.model_ranks)
    all.most_rows = std::max(all.most_rows, rows.most_beside(first));
  return all;
}

Group rows_group(const Plan& plan, int64_t layer) {
  return layer < plan.boundary ? plan.front_group() : Group::kReplicas;
}

bool counts_rows(const Plan& plan, int rank) {
  return plan.loss_layout() == Layout::kBatch || plan.place_of(rank) + 1 == plan.places();
}

}  // namespace owt

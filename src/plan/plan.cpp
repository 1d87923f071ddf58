#include "src/plan/plan.h"

#include <algorithm>

namespace owt {

int Plan::ranks_of(Group group) const {
  if (group == Group::kWorld) return ranks();
  return group == Group::kModel ? model_ranks : replicas();
}

Slice Plan::back_layers(int place) const {
  return stages.empty() ? Slice{boundary, std::ssize(layers)} : stages[static_cast<size_t>(place)];
}

bool Plan::has_matrices() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerPlan& at) {
    return std::find(at.matrices.begin(), at.matrices.end(), true) != at.matrices.end();
  });
}

Slice Plan::layers_at(int place) const {
  const Slice back = back_layers(place);
  return {back.begin == boundary ? 0 : back.begin, back.end};
}

Layout Plan::front_layout() const {
  return facts_of(request.strategy).shares_rows && model_ranks > 1 ? Layout::kReplicated : Layout::kBatch;
}

Group Plan::front_group() const { return front_layout() == Layout::kBatch ? Group::kWorld : Group::kReplicas; }

Layout Plan::loss_layout() const {
  if (!split()) return front_layout();
  return sharded_loss ? Layout::kFeature : Layout::kReplicated;
}

const StrategyFacts& acting_strategy(const Plan& plan) {
  const StrategyFacts& asked = facts_of(plan.request.strategy);
  return plan.split() || (plan.ranks() > 1 && !asked.splits()) ? asked : facts_of(kPlainDataParallel);
}

}  // namespace owt

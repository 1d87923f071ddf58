#include "src/plan/plan.h"

namespace owt {

int Plan::ranks_of(Group group) const {
  if (group == Group::kWorld) return ranks();
  return group == Group::kModel ? model_ranks : replicas();
}

Slice Plan::layers_behind(int place) const {
  return in_stages() ? stages[static_cast<size_t>(place)] : Slice{boundary, std::ssize(layers)};
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
  const bool several = plan.ranks() > 1 && (plan.split() || !asked.splits());
  return several || plan.in_stages() ? asked : facts_of(kPlainDataParallel);
}

}  // namespace owt

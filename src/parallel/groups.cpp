#include "src/parallel/groups.h"

#include "src/comm/solo.h"

namespace owt {

Groups::Groups(const Plan& plan, Communicator& world)
    : world_(world), model_(&world), replicas_(&world), device_(plan.request.on.device) {
  OWT_CHECK_EQ(world.ranks(), plan.ranks());
  const int members = plan.model_ranks;
  const auto alone = [&] { return make_solo_communicator(plan.request.on.device); };
  if (plan.replicas() > 1) {
    made_model_ = members > 1 ? world.split(world.rank() / members) : alone();
    model_ = made_model_.get();
  }
  if (members > 1) {
    made_replicas_ = plan.replicas() > 1 ? world.split(world.rank() % members) : alone();
    replicas_ = made_replicas_.get();
  }
}

Communicator& Groups::of(Group group) const {
  if (group == Group::kWorld) return world_;
  return group == Group::kModel ? *model_ : *replicas_;
}

}  // namespace owt

#include "src/plan/groups.h"

#include "src/comm/half_wire.h"
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
  if (!plan.request.half_wire) return;
  half_world_ = make_half_wire(world_, device_);
  half_model_ = make_half_wire(*model_, device_);
  half_replicas_ = make_half_wire(*replicas_, device_);
}

Communicator& Groups::wire(Group group) const {
  if (!half_world_) return of(group);
  if (group == Group::kWorld) return *half_world_;
  return group == Group::kModel ? *half_model_ : *half_replicas_;
}

Communicator& Groups::of(Group group) const {
  if (group == Group::kWorld) return world_;
  return group == Group::kModel ? *model_ : *replicas_;
}

}  // namespace owt

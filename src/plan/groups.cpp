#include "src/plan/groups.h"

#include "src/comm/bf16_transport.h"
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
  if (!plan.request.bf16_transport) return;
  bf16_world_ = make_bf16_transport(world_, device_);
  bf16_model_ = make_bf16_transport(*model_, device_);
  bf16_replicas_ = make_bf16_transport(*replicas_, device_);
}

Communicator& Groups::wire(Group group) const {
  if (!bf16_world_) return of(group);
  if (group == Group::kWorld) return *bf16_world_;
  return group == Group::kModel ? *bf16_model_ : *bf16_replicas_;
}

Communicator& Groups::of(Group group) const {
  if (group == Group::kWorld) return world_;
  return group == Group::kModel ? *model_ : *replicas_;
}

}  // namespace owt

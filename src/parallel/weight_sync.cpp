#include "src/parallel/weight_sync.h"

#include "src/parallel/grad_sync.h"
#include "src/parallel/sharded_update.h"
#include "src/parallel/star_update.h"
#include "src/plan/plan_updates.h"

namespace owt {

namespace {

std::unique_ptr<WeightSync> make_summed(const Plan& plan, const WeightSync::LayerOf& layer_of, const Groups& groups) {
  // Without other ranks nothing is summed.
  const std::span<const Bucket> buckets = sums_gradients(plan, 0) ? plan.buckets : std::span<const Bucket>();
  const bool copies = plan.of_step.gradient_copies != kNoTransfer;
  return std::make_unique<GradSync>(buckets, layer_of, plan.request.on, groups.wire(plan.front_group()),
                                    copies ? &groups.wire(Group::kModel) : nullptr);
}

}  // namespace

std::unique_ptr<WeightSync> make_front_sync(const Plan& plan, const WeightSync::LayerOf& layer_of, const Groups& groups,
                                            const std::function<std::unique_ptr<WeightSync>()>& make_served) {
  switch (plan.updates()) {
    case Updates::kAll:
      return make_summed(plan, layer_of, groups);
    case Updates::kFirst:
      return std::make_unique<StarUpdate>(plan, layer_of, groups.wire(Group::kWorld));
    case Updates::kShares:
      return std::make_unique<ShardedUpdate>(plan, layer_of, groups.wire(Group::kWorld));
    case Updates::kServers:
      OWT_CHECK(make_served, "the plan has servers");
      return make_served();
  }
  fail("nothing updates the weights");
}

std::unique_ptr<WeightSync> make_dense_sync(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                            const Groups& groups) {
  std::vector<Bucket> buckets = plan.back_buckets;
  for (Bucket& bucket : buckets)  // buckets of other stages are empty
    if (!plan.is_at(bucket, groups.model().rank())) bucket = {};
  return std::make_unique<GradSync>(buckets, layer_of, plan.request.on, groups.wire(Group::kReplicas));
}

void complete_gradient(Param& param, const Stream& stream) {
  if (param.grad_is_zero) param.grad.zero(stream);
  param.grad_is_zero = false;
}

}  // namespace owt

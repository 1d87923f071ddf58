#include "src/parallel/weight_sync.h"

#include "src/parallel/grad_sync.h"
#include "src/parallel/sharded_update.h"
#include "src/parallel/star_update.h"
#include "src/plan/plan_updates.h"

namespace owt {

std::unique_ptr<WeightSync> make_front_sync(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                            const Groups& groups) {
  if (plan.updates() == Updates::kShares)
    return std::make_unique<ShardedUpdate>(plan, layer_of, groups.wire(Group::kWorld));
  if (plan.updates() == Updates::kFirst)
    return std::make_unique<StarUpdate>(plan, layer_of, groups.wire(Group::kWorld));
  // Without other ranks nothing is summed.
  const std::span<const Bucket> buckets = sums_gradients(plan, 0) ? plan.buckets : std::span<const Bucket>();
  return std::make_unique<GradSync>(buckets, layer_of, plan.request.on, groups.wire(plan.front_group()),
                                    plan.copies_gradients() ? &groups.wire(Group::kModel) : nullptr);
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

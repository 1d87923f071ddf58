#include "src/parallel/sharded_update.h"

#include <algorithm>

#include "src/core/canonical.h"
#include "src/core/conversions.h"
#include "src/core/dispatch.h"
#include "src/plan/plan_updates.h"

namespace owt {
UpdateInShares::UpdateInShares(const Plan& plan, const LayerOf& layer_of, Communicator& comm) : comm_(comm) {
  OWT_CHECK_EQ(comm.ranks(), plan.ranks());
  for (const Bucket& bucket : plan.buckets) groups_.push_back(group_of(plan, bucket, layer_of));
}

UpdateInShares::Group UpdateInShares::group_of(const Plan& plan, const Bucket& bucket, const LayerOf& layer_of) {
  const Compute& on = plan.request.on;
  Group group;
  group.comm = bucket.trained ? &comm_ : &comm_.unrounded();
  group.share = updated_share(plan, bucket, comm_.rank());
  group.gradients = Tensor({bucket.elements}, weight_sum_type(on), on.device);
  group.values = Tensor({bucket.elements}, DType::kF32, on.device);
  // The padding between the parameters travels too.
  group.gradients.zero();
  group.values.zero();
  if (has_copies16(plan, bucket)) group.copies = Tensor({bucket.elements}, DType::kBF16, on.device);
  int64_t first = 0;
  for (const int64_t layer : bucket.layers)
    for (Param* each : layer_of(layer).params()) {
      Param& param = *each;
      if (!bucket.holds(param.role)) continue;
      const Shape shape = param.shape();
      OWT_CHECK(param.grad_type == weight_sum_type(on), param.name, ": gradients of several ranks are added in ",
                name_of(weight_sum_type(on)));
      Tensor value = group.values.part(first, shape);
      if (param.value.defined()) value.copy_from(param.value);
      param.value = value;
      param.grad = group.gradients.part(first, shape);
      if (param.has_copy16(on)) param.copy16 = group.copies.part(first, shape);
      const Slice mine = share_of(group.share, first, shape.elements());
      group.parts.push_back({&param, mine, param.grad.part(mine.begin, {mine.size()})});
      part_of_[&param] = mine;
      first += aligned_elements(shape.elements());
    }
  OWT_CHECK(first <= bucket.elements);
  return group;
}

Slice UpdateInShares::updated(const Param& param) const {
  const auto found = part_of_.find(&param);
  OWT_CHECK(found != part_of_.end(), param.name, " is not updated in shares");
  return found->second;
}

void UpdateInShares::complete(const Group& group, const Stream& stream) {
  for (const ParamPart& part : group.parts) complete_gradient(*part.param, stream);
}

void UpdateInShares::renew_copies(Group& group, const Stream& stream) {
  if (!group.copies.defined()) return;
  dispatch(stream.device(), [&](auto tag) { round_to_bf16(tag, group.values, group.copies, stream); });
}

ShardedUpdate::ShardedUpdate(const Plan& plan, const LayerOf& layer_of, Communicator& comm)
    : UpdateInShares(plan, layer_of, comm), ways_(plan.buckets.size()) {}

void ShardedUpdate::start_gradients(int bucket, const Stream& stream) {
  Group& at = group(bucket);
  complete(at, stream);
  // Sum, not mean: the loss already carries 1/N (layers/loss/softmax_loss.h).
  Tensor sums = mine(at.gradients, at);
  way(bucket).summed = at.comm->reduce_scatter(at.gradients, sums, stream.record());
}

void ShardedUpdate::start_weights(int bucket, const Stream& stream) {
  Group& at = group(bucket);
  way(bucket).gathered = comm_.unrounded().all_gather(mine(at.values, at), at.values, stream.record());
}

void ShardedUpdate::wait_for_weights(int bucket, const Stream& stream) {
  stream.wait(way(bucket).gathered);
  renew_copies(group(bucket), stream);
}

}  // namespace owt

#include "src/parallel/grad_sync.h"

namespace owt {

GradSync::GradSync(const Plan& plan, Net& front, Communicator& comm, Profiler* profiler)
    : comm_(comm), profiler_(profiler), group_of_(static_cast<size_t>(front.size()), -1) {
  for (const Bucket& bucket : plan.buckets) {
    Group group;
    group.all = Tensor({bucket.elements}, DType::kF32, plan.request.on.device);
    group.all.zero();  // what lies between them travels too
    group.layers = group.left = static_cast<int64_t>(bucket.layers.size());
    int64_t used = 0;
    for (const int64_t layer : bucket.layers) {
      group_of_[static_cast<size_t>(layer)] = static_cast<int>(groups_.size());
      for (Param& param : front.layer(layer).params()) {
        param.grad = group.all.part(used, param.shape());
        used += aligned_elements(param.shape().elements());
        group.params.push_back(&param);
      }
    }
    OWT_CHECK_EQ(used, bucket.elements);
    groups_.push_back(std::move(group));
  }
}

void GradSync::layer_done(int64_t layer, const Stream& stream) {
  const int group = group_of_[static_cast<size_t>(layer)];
  if (group < 0) return;
  Group& g = groups_[static_cast<size_t>(group)];
  if (--g.left == 0) send(g, stream);
}

void GradSync::send(Group& group, const Stream& stream) {
  const Profiler::Scope scope(profiler_, "gradients", Phase::kTransfer);
  for (Param* param : group.params) {
    // A rank without rows has no gradient of its own, but its memory still counts in the sum.
    if (param->grad_is_zero) param->grad.zero(stream);
    param->grad_is_zero = false;
  }
  // Sum, not mean: the loss already carries 1/N (layers/softmax_loss.h).
  group.summed = comm_.all_reduce(group.all, stream.record());
}

void GradSync::finish(const Stream& stream) {
  const Profiler::Scope scope(profiler_, "gradients", Phase::kTransfer);
  for (Group& group : groups_) {
    OWT_CHECK_EQ(group.left, 0);
    stream.wait(group.summed);
    group.left = group.layers;
  }
}

}  // namespace owt

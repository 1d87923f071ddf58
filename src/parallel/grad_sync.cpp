#include "src/parallel/grad_sync.h"

namespace owt {

GradSync::GradSync(std::string name, std::span<const Bucket> buckets, const LayerOf& layer_of, const Compute& on,
                   Communicator& comm, Profiler* profiler, Communicator* copies)
    : name_(std::move(name)), comm_(comm), copies_(copies), profiler_(profiler) {
  for (const Bucket& bucket : buckets) {
    Group group;
    group.layers = group.left = static_cast<int64_t>(bucket.layers.size());
    for (const int64_t layer : bucket.layers) {
      if (static_cast<size_t>(layer) >= group_of_.size()) group_of_.resize(static_cast<size_t>(layer) + 1, -1);
      group_of_[static_cast<size_t>(layer)] = static_cast<int>(groups_.size());
      for (Param* param : layer_of(layer).params()) group.params.push_back(param);
    }
    group.all = Tensor({bucket.elements}, DType::kF32, on.device);
    group.all.zero();  // what lies between and behind them travels too
    int64_t used = 0;
    for (Param* param : group.params) {
      OWT_CHECK(used + param->shape().elements() <= bucket.elements);
      param->grad = group.all.part(used, param->shape());
      used += aligned_elements(param->shape().elements());
    }
    groups_.push_back(std::move(group));
  }
}

void GradSync::layer_done(int64_t layer, const Stream& stream) {
  const int group = static_cast<size_t>(layer) < group_of_.size() ? group_of_[static_cast<size_t>(layer)] : -1;
  if (group < 0) return;
  Group& g = groups_[static_cast<size_t>(group)];
  if (--g.left == 0) send(g, stream);
}

void GradSync::send(Group& group, const Stream& stream) {
  const Profiler::Scope scope(profiler_, name_, Phase::kTransfer);
  for (Param* param : group.params) {
    // A rank without rows has no gradient of its own, but its memory still counts in the sum.
    if (param->grad_is_zero) param->grad.zero(stream);
    param->grad_is_zero = false;
  }
  // Sum, not mean: the loss already carries 1/N (layers/softmax_loss.h).
  group.summed = comm_.all_reduce(group.all, stream.record());
  if (copies_) copy(group);
}

void GradSync::copy(Group& group) {
  const Profiler::Scope scope(profiler_, "gradient copies", Phase::kTransfer);
  group.summed = copies_->broadcast(group.all, group.all, 0, group.summed);
}

void GradSync::finish(const Stream& stream) {
  if (groups_.empty()) return;
  const Profiler::Scope scope(profiler_, copies_ ? "gradient copies" : name_, Phase::kTransfer);
  for (Group& group : groups_) {
    OWT_CHECK_EQ(group.left, 0);
    stream.wait(group.summed);
    group.left = group.layers;
  }
}

}  // namespace owt

#include "src/parallel/grad_sync.h"

namespace owt {
namespace {

constexpr const char* kCopies = "gradient copies";

}  // namespace

GradSync::GradSync(std::string name, std::span<const Bucket> buckets, const LayerOf& layer_of, const Compute& on,
                   Communicator& comm, Profiler* profiler, Communicator* copies)
    : name_(std::move(name)), copies_(copies), profiler_(profiler) {
  for (const Bucket& bucket : buckets) {
    Group group;
    group.comm = bucket.trained ? &comm : &comm.unrounded();
    if (copies) group.copies = bucket.trained ? copies : &copies->unrounded();
    group.layers = group.left = static_cast<int64_t>(bucket.layers.size());
    for (const int64_t layer : bucket.layers) {
      groups_of_.emplace(layer, groups_.size());
      for (Param* param : layer_of(layer).params())
        if (bucket.holds(param->role)) group.params.push_back(param);
    }
    group.all = Tensor({bucket.elements}, DType::kF32, on.device);
    group.all.zero();  // what lies between and behind them travels too
    int64_t used = 0;
    for (Param* param : group.params) {
      OWT_CHECK(used + param->shape().elements() <= bucket.elements);
      OWT_CHECK(param->grad_type == DType::kF32, param->name, ": gradients of several ranks are added in f32");
      param->grad = group.all.part(used, param->shape());
      used += aligned_elements(param->shape().elements());
    }
    groups_.push_back(std::move(group));
  }
}

void GradSync::layer_done(int64_t layer, const Stream& stream) {
  const auto [begin, end] = groups_of_.equal_range(layer);
  for (auto at = begin; at != end; ++at)
    if (Group& group = groups_[at->second]; --group.left == 0) send(group, stream);
}

void GradSync::send(Group& group, const Stream& stream) {
  const Profiler::Scope scope(profiler_, name_, Phase::kTransfer);
  for (Param* param : group.params) {
    // A rank without rows has no gradient of its own, but its memory still counts in the sum.
    if (param->grad_is_zero) param->grad.zero(stream);
    param->grad_is_zero = false;
  }
  // Sum, not mean: the loss already carries 1/N (layers/softmax_loss.h).
  group.summed = group.comm->all_reduce(group.all, stream.record());
  if (copies_) copy(group);
}

void GradSync::copy(Group& group) {
  const Profiler::Scope scope(profiler_, kCopies, Phase::kTransfer);
  group.summed = group.copies->broadcast(group.all, group.all, 0, group.summed);
}

void GradSync::finish(const Stream& stream) {
  if (groups_.empty()) return;
  const std::string_view last = copies_ ? kCopies : std::string_view(name_);  // a scope keeps no text of its own
  const Profiler::Scope scope(profiler_, last, Phase::kTransfer);
  for (Group& group : groups_) {
    OWT_CHECK_EQ(group.left, 0);
    stream.wait(group.summed);
    group.left = group.layers;
  }
}

}  // namespace owt

#include "src/parallel/weight_average.h"

#include <utility>

#include "src/core/conversions.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/plan/wire_bytes.h"

namespace owt {

// Weights must not be rounded for transport: the change of one step may be smaller than a bf16 rounding error.
WeightAverage::WeightAverage(const Plan& plan, const WeightSync::LayerOf& layer_of, Communicator& comm)
    : comm_(comm.unrounded()) {
  OWT_CHECK(plan.of_step.averages != kNoTransfer);
  for (const Bucket& bucket : plan.buckets) groups_.push_back(group_of(plan, bucket, layer_of));
}

WeightAverage::Group WeightAverage::group_of(const Plan& plan, const Bucket& bucket,
                                             const WeightSync::LayerOf& layer_of) {
  Group group;
  group.all = Tensor({averaged_elements(plan, bucket)}, DType::kF32, plan.request.on.device);
  group.all.zero();  // padding travels too
  for (const int64_t layer : bucket.layers)
    for (Param* param : layer_of(layer).params())
      if (bucket.holds(param->role)) group.params.push_back(param);
  int64_t used = 0;
  const auto place = [&](const Shape& shape) {
    OWT_CHECK(used + shape.elements() <= group.all.elements());
    Tensor placed = group.all.part(used, shape);
    used += aligned_elements(shape.elements());
    return placed;
  };
  for (Param* param : group.params) {
    Tensor value = place(param->shape());
    if (param->value.defined()) value.copy_from(param->value);
    param->value = value;
  }
  for (const Param* param : group.params)
    for (int i = 0; param->role == ParamRole::kTrained && i < plan.request.optimizer_states; ++i)
      states_[param].push_back(place(param->shape()));
  return group;
}

std::vector<Tensor> WeightAverage::states(const Param& param) const {
  const auto found = states_.find(&param);
  return found == states_.end() ? std::vector<Tensor>() : found->second;
}

double WeightAverage::take_share() {
  return static_cast<double>(std::exchange(own_rows_, 0)) / static_cast<double>(std::exchange(all_rows_, 0));
}

void WeightAverage::start(int bucket, const Tensor& share, const Stream& stream) {
  Group& at = group(bucket);
  dispatch(stream.device(), [&](auto tag) { scale(tag, at.all, share, stream); });
  at.arrived = comm_.all_reduce(at.all, stream.record());
}

void WeightAverage::wait(int bucket, const Stream& stream) {
  Group& at = group(bucket);
  stream.wait(at.arrived);
  for (Param* param : at.params) {
    ++param->version;
    if (!param->copy16.defined()) continue;
    dispatch(stream.device(), [&](auto tag) { round_to_bf16(tag, param->value, param->copy16, stream); });
  }
}

void WeightAverage::run(const Tensor& share, const Stream& stream) {
  const int buckets = static_cast<int>(groups_.size());
  for (int b = 0; b < buckets; ++b) start(b, share, stream);
  for (int b = 0; b < buckets; ++b) wait(b, stream);
}

void scale(Cpu, Tensor& values, const Tensor& factor, const Stream&) {
  constexpr int64_t kElementsOfAThread = 1 << 15;
  const double by = *factor.data<double>();
  float* const value = values.data();
  parallel_for(values.elements(), kElementsOfAThread, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) value[i] = static_cast<float>(value[i] * by);
  });
}

}  // namespace owt

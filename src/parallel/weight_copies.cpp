#include "src/parallel/weight_copies.h"

#include <utility>

#include "src/core/conversions.h"
#include "src/core/dispatch.h"
#include "src/core/poison.h"
#include "src/core/threads.h"
#include "src/plan/pipeline.h"

namespace owt {

WeightCopies::WeightCopies(std::span<Param* const> params, int copies, Optimizer& optimizer)
    : params_(params.begin(), params.end()),
      copies_(static_cast<size_t>(copies)),
      optimizer_(optimizer),
      taken_(kNewestWeights) {
  for (std::vector<Values>& copy : copies_)
    for (const Param* param : params_) {
      const Tensor& value = param->value;
      Values& values = copy.emplace_back(Values{Tensor(value.shape(), value.dtype(), value.device()), {}});
      if (param->copy16.defined()) values.copy16 = Tensor(value.shape(), DType::kBF16, value.device());
    }
}

void WeightCopies::make(int copy, int ahead, const Stream& stream) {
  OWT_CHECK(taken_ == kNewestWeights, "a copy of weights that are not the newest");
  for (size_t i = 0; i < params_.size(); ++i)
    make(*params_[i], copies_.at(static_cast<size_t>(copy))[i], ahead, stream);
}

void WeightCopies::make(Param& param, Values& values, int ahead, const Stream& stream) {
  if (param.value.elements() == 0) return;
  if (ahead == 0) {
    values.value.copy_from(param.value, stream);
    if (values.copy16.defined()) values.copy16.copy_from(param.copy16, stream);
    return;
  }
  OWT_CHECK(optimizer_.settings().predicts(), "no velocity to predict weights from");
  dispatch(stream.device(), [&](auto tag) {
    predict(tag, param.value, optimizer_.states(param).front(), ahead, values.value, stream);
    if (values.copy16.defined()) round_to_bf16(tag, values.value, values.copy16, stream);
  });
}

void WeightCopies::take(int copy) {
  OWT_CHECK((taken_ == kNewestWeights) != (copy == kNewestWeights), "weights are taken twice");
  swap_with(copy == kNewestWeights ? taken_ : copy);
  taken_ = copy;
}

void WeightCopies::forget(int copy, const Stream& stream) const {
  OWT_CHECK(copy != taken_, "a copy that is taken");
  for (const Values& values : copies_.at(static_cast<size_t>(copy))) {
    poison(values.value, stream);
    poison(values.copy16, stream);
  }
}

void WeightCopies::swap_with(int copy) {
  for (size_t i = 0; i < params_.size(); ++i) {
    Values& values = copies_.at(static_cast<size_t>(copy))[i];
    std::swap(params_[i]->value, values.value);
    std::swap(params_[i]->copy16, values.copy16);
    ++params_[i]->version;
  }
}

void predict(Cpu, const Tensor& value, const Tensor& velocity, int updates, Tensor& predicted, const Stream&) {
  constexpr int64_t kElementsOfAThread = 1 << 15;
  const float* const weight = value.data();
  const float* const change = velocity.data();
  float* const later = predicted.data();
  const auto times = static_cast<float>(updates);
  parallel_for(value.elements(), kElementsOfAThread, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) later[i] = weight[i] + times * change[i];
  });
}

}  // namespace owt

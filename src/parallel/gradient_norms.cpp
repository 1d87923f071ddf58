#include "src/parallel/gradient_norms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/core/blas.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/plan/plan_bytes.h"

namespace owt {
namespace {

// A parameter that all ranks of a model group have counts at place 0 only.
bool counts(const LayerPlan& layer, const Param& param, int place) {
  const bool is_part = param.shape().elements() < param.full_shape.elements();
  return is_part || place == 0 || layer.place == place;
}

int64_t chunks_of(int64_t count) { return (count + kSquareChunk - 1) / kSquareChunk; }

template <class T>
Tensor on_device(const std::vector<T>& values, DType type, Device device) {
  Tensor here({std::ssize(values)}, type);
  std::copy(values.begin(), values.end(), here.data<T>());
  return here.to(device);
}

}  // namespace

GradientNorms::GradientNorms(const Plan& plan, RankModel& model, const WeightSync& front, int place,
                             const NormSettings& settings)
    : settings_(settings), lars_(plan.request.norm_sums > 1) {
  std::vector<double> decay;
  std::vector<Part> whole;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i)
    for (Param* param : model.layer(i).params()) {
      if (param->role != ParamRole::kTrained) continue;
      const auto number = std::ssize(decay);
      const bool adapted = lars_ && (settings.adapt_all || param->full_shape.rank() > 1);
      decay.push_back(adapted ? settings.decay * param->decay_mult : -1);
      number_of_[param] = number;
      if (counts(plan.layer(i), *param, place))
        whole.push_back({param, {0, param->grad_shape().elements()}, {}, number});
    }
  find_parts(plan, front);
  if (parts_.empty()) parts_ = std::move(whole);  // no updates are sharded
  const Device device = plan.request.on.device;
  const int64_t params = std::ssize(decay), sums = params * (lars_ ? 2 : 1);
  std::vector<int64_t> first_chunk(static_cast<size_t>(sums) + 1, 0);
  for (const Part& part : parts_)
    for (int64_t sum = part.number; sum < sums; sum += params)
      first_chunk[static_cast<size_t>(sum) + 1] = chunks_of(part.elements.size());
  std::partial_sum(first_chunk.begin(), first_chunk.end(), first_chunk.begin());
  memory_ = {Tensor({sums}, DType::kF64, device), Tensor({norm_chunks(plan)}, DType::kF64, device),
             on_device(first_chunk, DType::kI64, device), on_device(decay, DType::kF64, device),
             Tensor({params + 1}, DType::kF64, device)};
  OWT_CHECK(first_chunk.back() <= memory_.partials.elements());
}

// Buckets begin with the last layers, so the parts need sorting.
void GradientNorms::find_parts(const Plan& plan, const WeightSync& front) {
  for (int bucket = 0; bucket < std::ssize(plan.buckets); ++bucket)
    for (const ParamPart& part : front.share(bucket))
      if (part.param->role == ParamRole::kTrained)
        parts_.push_back({part.param, part.elements, part.gradient, number_of_.at(part.param)});
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.number < b.number; });
}

std::vector<SquareItem> GradientNorms::items() const {
  std::vector<SquareItem> all;
  int64_t chunk = 0;
  const auto add = [&](const Tensor& values, int64_t count) {
    const bool there = values.defined() && count > 0;
    all.push_back({there ? values.raw() : nullptr, there && values.dtype() == DType::kBF16, count, chunk});
    chunk += chunks_of(count);
  };
  for (const Part& part : parts_) {
    const Tensor whole = part.param->grad_is_zero ? Tensor() : part.param->grad;
    add(part.gradient.defined() ? part.gradient : whole, part.elements.size());
  }
  for (const Part& part : parts_)
    if (lars_) add(part.param->value.part(part.elements.begin, {part.elements.size()}), part.elements.size());
  return all;
}

void GradientNorms::add_up(const Stream& stream) {
  dispatch(stream.device(), [&](auto tag) { add_squares(tag, items(), memory_, stream); });
}

void GradientNorms::settle(double gradient_scale, Tensor& norm, const Stream& stream) {
  const NormRule rule{settings_.clip, lars_, settings_.trust, settings_.eps, gradient_scale, memory_.decay.elements()};
  dispatch(stream.device(), [&](auto tag) { settle_norms(tag, rule, memory_, norm, stream); });
}

void add_squares(Cpu, std::span<const SquareItem> items, NormMemory& memory, const Stream&) {
  double* const partials = memory.partials.data<double>();
  for (const SquareItem& item : items) {
    OWT_CHECK(!item.bf16, "gradients on the CPU are f32");
    const auto* values = static_cast<const float*>(item.values);
    parallel_for(chunks_of(item.count), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t first = c * kSquareChunk, count = std::min(kSquareChunk, item.count - first);
        partials[item.first_chunk + c] = values ? sum_of_squares(values + first, count) : 0;
      }
    });
  }
  const int64_t* const first = memory.first_chunk.data<int64_t>();
  for (int64_t sum = 0; sum < memory.sums.elements(); ++sum)
    memory.sums.data<double>()[sum] = std::accumulate(partials + first[sum], partials + first[sum + 1], 0.0);
}

void settle_norms(Cpu, const NormRule& rule, NormMemory& memory, Tensor& norm, const Stream&) {
  const double* const sums = memory.sums.data<double>();
  const double* const decay = memory.decay.data<double>();
  double* const factors = memory.factors.data<double>();
  const double all = rule.gradient_scale * std::sqrt(std::accumulate(sums, sums + rule.params, 0.0));
  *norm.data<double>() = all;
  factors[0] = rule.clip > 0 ? std::min(1.0, rule.clip / (all + 1e-6)) : 1;
  for (int64_t p = 0; p < rule.params; ++p) {
    factors[1 + p] = 1;
    if (!rule.lars || decay[p] < 0) continue;
    const double g = rule.gradient_scale * factors[0] * std::sqrt(sums[p]), w = std::sqrt(sums[rule.params + p]);
    if (g > 0 && w > 0) factors[1 + p] = rule.trust * w / (g + decay[p] * w + rule.eps);
  }
}

}  // namespace owt

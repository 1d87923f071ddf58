#include "src/parallel/weight_ema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/core/conversions.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

void note_change(Param& param, const Stream& stream) {
  ++param.version;
  if (!param.copy16.defined() || param.value.elements() == 0) return;
  dispatch(stream.device(), [&](auto tag) { round_to_bf16(tag, param.value, param.copy16, stream); });
}

}  // namespace

EmaSettings EmaSettings::from(Config& optimizer) {
  EmaSettings ema;
  ema.decay = optimizer.number("ema", ema.decay, {.low = 0, .high = 1});
  if (ema.decay == 1) optimizer.error("ema", "'ema' is 1, wanted less: the averages would stay what they were");
  ema.every = static_cast<int>(optimizer.integer("ema_every", ema.every, {.low = 1, .high = 1 << 20}));
  ema.lookahead = optimizer.boolean("lookahead", ema.lookahead);
  if (ema.lookahead && !ema.on())
    optimizer.error("lookahead",
                    "'lookahead' moves the weights to their average, and 'ema' is 0; set it, e.g. to 0.95");
  ema.warmup = optimizer.boolean("ema_warmup", ema.warmup);
  ema.ramp = optimizer.number("ema_ramp", ema.ramp, {.low = 0, .high = 100});
  if (ema.every > 1 && !optimizer.given("ema"))
    optimizer.error("ema_every", "'ema_every' is for averages of the weights; set 'ema', e.g. to 0.9999");
  if (ema.ramp > 0 && !ema.on())
    optimizer.error("ema_ramp", "'ema_ramp' changes the decay of the averages, and 'ema' is 0; set it, e.g. to 0.95");
  return ema;
}

double EmaSettings::kept(int64_t last, int64_t step, double progress) const {
  double all = std::pow(progress, ramp);  // 1 without a ramp, even of 0
  for (int64_t n = last + 1; n <= step; ++n) {
    const auto steps = static_cast<double>(n);
    all *= warmup ? std::min(decay, (1 + steps) / (10 + steps)) : decay;
  }
  return all;
}

WeightEma::WeightEma(std::vector<Param*> params) : params_(std::move(params)) {
  for (const Param* param : params_)
    averages_.emplace_back(param->value.shape(), param->value.dtype(), param->value.device());
}

void WeightEma::begin(const Stream& stream) {
  for (size_t i = 0; i < params_.size(); ++i) averages_[i].copy_from(params_[i]->value, stream);
}

void WeightEma::update(double kept, const Tensor& kept_on_device, const Stream& stream) {
  std::vector<EmaItem> items;
  for (size_t i = 0; i < params_.size(); ++i)
    if (averages_[i].elements() > 0)
      items.push_back({averages_[i].data(), params_[i]->value.data(), averages_[i].elements()});
  dispatch(stream.device(), [&](auto tag) { ema_update(tag, kept, kept_on_device, items, stream); });
}

void WeightEma::give(const Stream& stream) {
  for (size_t i = 0; i < params_.size(); ++i) {
    params_[i]->value.copy_from(averages_[i], stream);
    note_change(*params_[i], stream);
  }
}

void WeightEma::swap(const Stream& stream) {
  for (size_t i = 0; i < params_.size(); ++i) {
    std::swap(params_[i]->value, averages_[i]);
    note_change(*params_[i], stream);
  }
}

Tensor& WeightEma::of(const Param& param) {
  const auto found = std::find(params_.begin(), params_.end(), &param);
  OWT_CHECK(found != params_.end(), param.name, " has no average");
  return averages_[static_cast<size_t>(found - params_.begin())];
}

// In this form the average of equal weights does not change in any bit.
void ema_update(Cpu, double kept, const Tensor&, std::span<const EmaItem> items, const Stream&) {
  constexpr int64_t kElementsOfAThread = 1 << 15;
  const auto taken = static_cast<float>(1 - kept);
  for (const EmaItem& item : items)
    parallel_for(item.count, kElementsOfAThread, [&](int64_t begin, int64_t end) {
      float* const average = item.average;
      const float* const weight = item.weight;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) average[i] += taken * (weight[i] - average[i]);
    });
}

}  // namespace owt

#include "src/server/push_filters.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>

#include "src/core/bf16.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

using Value = FilterSettings::Value;

FilterSettings of_type(Value value) { return {.value = value}; }

// The levels from the smallest to the largest value. A coin may add one more to the last.
double levels_of(Value value) { return std::ldexp(1.0, static_cast<int>(8 * of_type(value).value_bytes())) - 2; }

double width_of(const Extremes& of) { return static_cast<double>(of.most) - static_cast<double>(of.least); }

float to_fp16(float x) {
  constexpr float kLeastNormal = 0x1p-14f, kLargest = 65504;
  if (!std::isfinite(x)) return x;
  if (std::fabs(x) < kLeastNormal) return std::nearbyint(x * 0x1p24f) * 0x1p-24f;
  const auto bits = std::bit_cast<uint32_t>(x);
  constexpr uint32_t kDropped = 13;
  const uint32_t half = (1u << (kDropped - 1)) - 1, odd = bits >> kDropped & 1;
  return std::clamp(std::bit_cast<float>((bits + half + odd) & ~((1u << kDropped) - 1)), -kLargest, kLargest);
}

Extremes extremes_of(std::span<const float> values, const Sent& sent) {
  Extremes all{INFINITY, -INFINITY};
  bool any = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!sent[i]) continue;
    if (!std::isfinite(values[i])) return {NAN, NAN};
    all = {std::min(all.least, values[i]), std::max(all.most, values[i])};
    any = true;
  }
  return any ? all : Extremes();
}

Extremes fix(std::span<float> values, const Sent& sent, Value value, const Philox& random, uint64_t first_draw) {
  const bool coin = value == Value::kCoin8 || value == Value::kCoin16;
  const Extremes of = extremes_of(values, sent);
  const double levels = levels_of(value), width = width_of(of);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!sent[i]) continue;
    double level = 0;
    if (width > 0) {
      const double v = (static_cast<double>(values[i]) - static_cast<double>(of.least)) / width * levels,
                   floor = std::floor(v);
      const auto draw = static_cast<double>(random.uniform(first_draw + i));
      level = floor + (draw < (coin ? 0.5 : v - floor) ? 1 : 0);
    }
    values[i] = at_level(static_cast<uint32_t>(level), of, value);
  }
  return of;
}

void take_back(std::span<float> values, std::span<float> residual) {
  for (size_t i = 0; i < values.size(); ++i) values[i] += residual[i], residual[i] = 0;
}

void hold_back(size_t i, std::span<float> values, std::span<float> residual, Sent& sent) {
  if (sent[i]) residual[i] = values[i];
  values[i] = 0;
  sent[i] = false;
}

}  // namespace

void keep_significant(std::span<float> values, std::span<float> residual, double threshold, Sent& sent) {
  const double squares = std::accumulate(values.begin(), values.end(), 0.0, [](double sum, float x) {
    return sum + static_cast<double>(x) * static_cast<double>(x);
  });
  const double least = threshold * std::sqrt(squares / static_cast<double>(values.size()));
  for (size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i]) && std::fabs(static_cast<double>(values[i])) <= least)
      hold_back(i, values, residual, sent);
}

void leave_out_at_zero(std::span<float> values, std::span<const float> weights, double least, Sent& sent) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (weights[i] != 0 || !(std::fabs(static_cast<double>(values[i])) <= least)) continue;
    values[i] = 0;
    sent[i] = false;
  }
}

void keep_top(std::span<float> values, std::span<float> residual, double share, Sent& sent) {
  const auto kept = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto size = [&](size_t i) { return std::isnan(values[i]) ? INFINITY : std::fabs(values[i]); };
  const auto larger = [&](size_t a, size_t b) { return size(a) != size(b) ? size(a) > size(b) : a < b; };
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::clamp<size_t>(kept, 1, order.size()));
  if (end != order.end()) std::nth_element(order.begin(), end, order.end(), larger);
  std::for_each(end, order.end(), [&](size_t i) {
    if (std::isfinite(values[i])) hold_back(i, values, residual, sent);
  });
}

void skip_at_random(std::span<float> values, double kept, const Philox& random, uint64_t first_draw, Sent& sent) {
  for (size_t i = 0; i < values.size(); ++i) {
    sent[i] = sent[i] && (static_cast<double>(random.uniform(first_draw + i)) < kept || !std::isfinite(values[i]));
    values[i] = sent[i] ? static_cast<float>(static_cast<double>(values[i]) / kept) : 0;
  }
}

Extremes round_to(std::span<float> values, const Sent& sent, Value value, const Philox& random, uint64_t first_draw) {
  if (value == Value::kBf16)
    for (float& x : values) x = static_cast<float>(Bf16(x));
  if (value == Value::kFp16) std::transform(values.begin(), values.end(), values.begin(), to_fp16);
  return of_type(value).fixes() ? fix(values, sent, value, random, first_draw) : Extremes();
}

float at_level(uint32_t level, const Extremes& of, Value value) {
  return static_cast<float>(static_cast<double>(of.least) + level / levels_of(value) * width_of(of));
}

uint32_t level_at(float fixed, const Extremes& of, Value value) {
  const double width = width_of(of), above = static_cast<double>(fixed) - static_cast<double>(of.least);
  return width > 0 ? static_cast<uint32_t>(std::lround(above / width * levels_of(value))) : 0;
}

Filtered PushFilter::apply(size_t tensor, std::span<float> gradient, int64_t task, const Penalised& of) {
  if (residuals_.size() <= tensor) residuals_.resize(tensor + 1);
  std::vector<float>& residual = residuals_[tensor];
  if (settings_.holds_back()) residual.resize(gradient.size()), take_back(gradient, residual);
  Filtered to{.sent = Sent(gradient.size(), true)};
  if (settings_.significant > 0) keep_significant(gradient, residual, settings_.significant, to.sent);
  if (settings_.kkt > 0 && of.penalty > 0) leave_out_at_zero(gradient, of.weights, settings_.kkt * of.penalty, to.sent);
  if (settings_.top < 1) keep_top(gradient, residual, settings_.top, to.sent);
  const Philox random(seed_, RandomStream::kVirtual, static_cast<uint64_t>(task), concat("push ", worker_));
  const uint64_t first = static_cast<uint64_t>(tensor) << 40, half = uint64_t{1} << 39;
  if (settings_.skip < 1) skip_at_random(gradient, settings_.skip, random, first, to.sent);
  to.extremes = round_to(gradient, to.sent, settings_.value, random, first + half);
  return to;
}

}  // namespace owt

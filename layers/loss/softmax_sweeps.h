// Sweeps over the logits of one row on the CPU, in vectors. T is float or Bf16. The order of each sum depends on the
// number of logits and on the width of vectors only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "layers/loss/softmax_rows.h"
#include "src/core/bf16.h"
#include "src/core/row_label.h"
#include "src/core/simd_exp.h"

namespace owt {

// The largest logit; NaN is ignored. -infinity for no logits.
template <class T>
float largest_of(const T* logits, int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t c = 0; c < count; ++c) {
    const float logit = logits[c];
    largest = logit > largest ? logit : largest;
  }
  return largest;
}

// The logits of one row, or of some of its classes: the inputs of the loss times a scale, but the label's has a margin.
// By default they are the inputs, without any rounding.
template <class T>
struct RowLogits {
  const T* inputs;
  int64_t count;
  RowLabel label;  // relative to these classes; may be outside of them
  float scale;
  LabelLogit own;  // the first label's; not used if that is outside

  RowLogits(const T* of_inputs, int64_t classes, const RowLabel& of_row, const RowMargin& margin)
      : inputs(of_inputs), count(classes), label(of_row), scale(margin.scale), own{0, 1} {
    if (has(label.first)) own = margin.of_label(inputs[label.first]);
  }
  bool has(int64_t c) const { return c >= 0 && c < count; }
  float operator[](int64_t c) const { return c == label.first ? own.logit : scale * float{inputs[c]}; }
};

// The largest logit of a whole row.
template <class T>
float largest_of(const RowLogits<T>& row) {
  const int64_t label = row.label.first;
  const float others =
      std::max(largest_of(row.inputs, label), largest_of(row.inputs + label + 1, row.count - label - 1));
  return std::max(row.scale * others, row.own.logit);  // NaN is ignored here too
}

// The number of these classes that rank before the first label, which is one of them: ranks_before() of softmax_rows.h.
template <class T>
int ranked_before(const RowLogits<T>& row) {
  const T* const inputs = row.inputs;
  const float scale = row.scale, own = row.own.logit;
  int before = 0;
#pragma omp simd reduction(+ : before)
  for (int64_t c = 0; c < row.label.first; ++c) before += scale * float{inputs[c]} >= own;
#pragma omp simd reduction(+ : before)
  for (int64_t c = row.label.first + 1; c < row.count; ++c) before += scale * float{inputs[c]} > own;
  return before;
}

// exp(below) for below <= 0, up to rounding, or NaN; 0 near the least normal number and under it, so that an impossible
// class has no gradient.
inline Vector exponential_up_to_1(Vector below) {
  const Vector value = exponential(below);
  return below < -87.0f ? Vector{} : value;  // NaN stays NaN
}

struct RowExponentials {
  double sum = 0;    // exp(logit - origin) over the classes
  double below = 0;  // logit - origin over the classes
};

// Where the exponentials of a row are kept until its gradient is written: in the memory of the gradient. In bf16 they
// would be rounded there, and the gradient once more, so they are computed again.
inline float* kept_in(float* dlogits) { return dlogits; }
inline float* kept_in(Bf16*) { return nullptr; }

// kept: kept_in().
template <class T>
RowExponentials row_exponentials(const RowLogits<T>& logits, float origin, float* kept) {
  constexpr int64_t kBlock = 512;  // stays in the first-level cache
  float below[kBlock], own_memory[kBlock];
  RowExponentials row;
  for (int64_t first = 0; first < logits.count; first += kBlock) {
    const int64_t size = std::min(kBlock, logits.count - first), label = logits.label.first - first;
    float* const exponentials = kept ? kept + first : own_memory;
    for_each_vector(size, [&](int64_t i, auto lanes) {
      const Vector x = load(logits.inputs + first + i, lanes) * logits.scale - origin;
      store(x, below + i, lanes);
      store(exponential_up_to_1(x), exponentials + i, lanes);
    });
    if (label >= 0 && label < size) {
      below[label] = logits.own.logit - origin;
      exponentials[label] = exponential_up_to_1(all_lanes(below[label]))[0];
    }
    double sum = 0, sum_below = 0;
#pragma omp simd reduction(+ : sum, sum_below)
    for (int64_t i = 0; i < size; ++i) {
      sum += static_cast<double>(exponentials[i]);
      sum_below += static_cast<double>(below[i]);
    }
    row.sum += sum, row.below += sum_below;
  }
  return row;
}

// RowGradient::at() and at_label() for these classes. origin, sum: the largest logit of the whole row, and its sum of
// exp(logit - origin). growth: what turns kept exponentials into exp(logit - origin).
template <class T>
void write_row_gradient(const RowLogits<T>& logits, float origin, float growth, double sum, const RowGradient& gradient,
                        T* dlogits) {
  const float scale = gradient.scale(sum), every = gradient.every;
  if constexpr (std::is_same_v<T, float>) {
    const float factor = growth * scale;
    for (int64_t c = 0; c < logits.count; ++c) dlogits[c] = dlogits[c] * factor - every;
  } else {
    for_each_vector(logits.count, [&](int64_t c, auto lanes) {
      const Vector below = load(logits.inputs + c, lanes) * logits.scale - origin;
      store(exponential_up_to_1(below) * scale - every, dlogits + c, lanes);
    });
  }
  for (const int c : {logits.label.first, logits.label.second})
    if (logits.has(c))
      dlogits[c] = logits.own.slope * gradient.at_label(std::exp(logits[c] - origin), scale, logits.label.share_of(c));
}

// Adds the targets of a row to the result and to the gradient of its label. targets: LabelRows::targets_of(). weight: 1
// / N. dlogits may be null.
template <class T>
RowResult add_targets(const RowLogits<T>& logits, const int32_t* targets, const TargetShare& share, float weight,
                      const RowResult& of_label, T* dlogits) {
  constexpr int64_t kBlock = 512;
  const float largest = largest_of(logits), factor = 1 / static_cast<float>(share.temperature);
  float exponentials[kBlock];
  const auto each = [&](const auto& function) {
    for (int64_t first = 0; first < logits.count; first += kBlock) {
      const int64_t size = std::min(kBlock, logits.count - first);
      for_each_vector(size, [&](int64_t i, auto lanes) {
        store(exponential_up_to_1((load(logits.inputs + first + i, lanes) - largest) * factor), exponentials + i,
              lanes);
      });
      for (int64_t i = 0; i < size; ++i) function(first + i, exponentials[i], target_of(targets[first + i]));
    }
  };
  TargetSums sums;
  each([&](int64_t c, float exponential, float target) {
    sums.add(exponential, float{logits.inputs[c]} - largest, target, share);
  });
  if (dlogits)
    each([&](int64_t c, float exponential, float target) {
      const double of_targets = share.of_gradient() * static_cast<double>(weight) * sums.gradient(exponential, target);
      dlogits[c] = static_cast<float>(share.of_label() * static_cast<double>(float{dlogits[c]}) + of_targets);
    });
  return with_targets(of_label, sums, std::log(sums.exponentials), share);
}

}  // namespace owt

// Sweeps over the logits of one row on the CPU, in vectors. T is float or Bf16. The order of each sum depends on the
// number of logits and on the width of vectors only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "layers/loss/softmax_rows.h"
#include "src/core/bf16.h"
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

// The number of classes that rank before a label with the logit `own`: ranks_before() of softmax_rows.h. The label is
// in [0, count].
template <class T>
int ranked_before(const T* logits, int64_t count, int64_t label, float own) {
  int before = 0;
#pragma omp simd reduction(+ : before)
  for (int64_t c = 0; c < label; ++c) before += float{logits[c]} >= own;
#pragma omp simd reduction(+ : before)
  for (int64_t c = label; c < count; ++c) before += float{logits[c]} > own;
  return before;
}

// exp(below) for below <= 0 or NaN; 0 near the least normal number and under it, so that an impossible class has no
// gradient.
inline Vector exponential_up_to_1(Vector below) {
  const Vector value = exponential(below);
  return below < -87.0f ? Vector{} : value;  // NaN stays NaN
}

struct RowExponentials {
  double sum = 0;    // exp(logit - origin) over the classes
  double below = 0;  // logit - origin over the classes
};

template <class T>
RowExponentials row_exponentials(const T* logits, int64_t count, float origin) {
  constexpr int64_t kBlock = 512;  // stays in the first-level cache
  float below[kBlock], exponentials[kBlock];
  RowExponentials row;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = std::min(kBlock, count - first);
    for_each_vector(size, [&](int64_t i, auto lanes) {
      const Vector x = load(logits + first + i, lanes) - origin;
      store(x, below + i, lanes);
      store(exponential_up_to_1(x), exponentials + i, lanes);
    });
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

// Calls use(logits, slope) with the logits of these inputs of the loss, and the slope of the label's logit. The label
// may be outside of [0, count); the slope is then 1. margin: null for inputs that are logits. buffer: `count` elements,
// used with a margin only.
template <class T, class Use>
auto with_logits(const T* inputs, int64_t count, int64_t label, const RowMargin* margin, float* buffer,
                 const Use& use) {
  if (!margin) return use(inputs, 1.0f);
  for_each_vector(count,
                  [&](int64_t c, auto lanes) { store(load(inputs + c, lanes) * margin->scale, buffer + c, lanes); });
  if (label < 0 || label >= count) return use(static_cast<const float*>(buffer), 1.0f);
  const LabelLogit own = margin->of_label(inputs[label]);
  buffer[label] = own.logit;
  return use(static_cast<const float*>(buffer), own.slope);
}

// dlogits = exp(logit - origin) * scale - every: RowGradient::at(). The exponentials are computed again, so that they
// need no memory.
template <class L, class T>
void write_row_gradient(const L* logits, int64_t count, float origin, float scale, float every, T* dlogits) {
  for_each_vector(count, [&](int64_t c, auto lanes) {
    store(exponential_up_to_1(load(logits + c, lanes) - origin) * scale - every, dlogits + c, lanes);
  });
}

}  // namespace owt

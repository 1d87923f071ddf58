#include "layers/loss/add_softmax.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "src/system/check.h"

namespace owt {
namespace {

// exp(x) for x <= 0 or NaN, to within 4e-16 of it; 0 below the range of normal numbers. The compiler vectorises loops
// over it, unlike those over std::exp().
// Source: as src/core/simd_exp.h, with the Taylor series up to r^13, whose rest is below 1e-17.
inline double exponential_up_to_1(double x) {
  constexpr double kLeast = -708.0, kWhole = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  constexpr double kSeries[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1,           1};
  const double shifted = x * 0x1.71547652b82fep0 + kWhole, n = shifted - kWhole;
  const double r = x - n * 0x1.62e42fefa3800p-1 - n * 0x1.ef35793c76730p-45;
  double sum = 1.0 / 6227020800;
  for (const double term : kSeries) sum = sum * r + term;
  const auto scale = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
  return x < kLeast ? 0 : sum * scale;
}

template <class T>
double softmax_of(std::span<const T> logits, std::span<double> sums) {
  OWT_CHECK(!logits.empty() && logits.size() == sums.size());
  const size_t classes = logits.size();
  const T* const x = logits.data();
  T most = x[0];
#pragma omp simd reduction(max : most)
  for (size_t c = 0; c < classes; ++c) most = most > x[c] ? most : x[c];
  const auto largest = static_cast<double>(most);
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t c = 0; c < classes; ++c) sum += exponential_up_to_1(static_cast<double>(x[c]) - largest);
  // Computed again: a list of the exponentials of very many classes would not stay in the cache.
  double* const to = sums.data();
#pragma omp simd
  for (size_t c = 0; c < classes; ++c) to[c] += exponential_up_to_1(static_cast<double>(x[c]) - largest) / sum;
  return largest + std::log(sum);
}

}  // namespace

double add_softmax(std::span<const float> logits, std::span<double> sums) { return softmax_of(logits, sums); }
double add_softmax(std::span<const double> logits, std::span<double> sums) { return softmax_of(logits, sums); }

}  // namespace owt

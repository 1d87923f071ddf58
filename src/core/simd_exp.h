// exp(x) and exp(x) - 1 of vectors (simd.h), each to within 2e-7. The latter keeps its digits near 0. Arguments beyond
// the range of f32 give its smallest and its largest normal numbers; NaN stays NaN.
// Source: Cephes' expf (Moshier): exp(x) = 2^n exp(r), with n a whole number and r no larger than log(2) / 2.
#pragma once

#include "src/core/simd.h"

namespace owt {

// exp(x) is (less_one + 1) * scale.
struct ExponentialParts {
  Vector less_one, scale;
};

inline ExponentialParts exponential_parts(Vector x) {
  constexpr float kLeast = -87.33f, kMost = 88.37f;  // n is an exponent of f32
  x = x < kLeast ? all_lanes(kLeast) : x;
  x = x > kMost ? all_lanes(kMost) : x;
  constexpr float kWhole = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  const Vector shifted = x * 1.44269504088896341f + kWhole, n = shifted - kWhole;
  const Vector r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Vector sum = r * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  return {sum * r * r + r, reinterpret_cast<Vector>((reinterpret_cast<VectorU32>(shifted) + 127) << 23)};
}

// Both use products only, so that NaN is kept.
inline Vector exponential(Vector x) {
  const ExponentialParts parts = exponential_parts(x);
  return (parts.less_one + 1.0f) * parts.scale;
}
inline Vector exponential_less_one(Vector x) {
  const ExponentialParts parts = exponential_parts(x);
  return parts.less_one * parts.scale + (parts.scale - 1.0f);
}

}  // namespace owt

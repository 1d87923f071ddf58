// Lanes of the compiler's vector types.
#pragma once

namespace owt {

// {lane kLanes[0] of a and b together, lane kLanes[1], ...}; b's lanes are numbered after a's. For vectors of integers
// with as many lanes as are picked.
template <int... kLanes, class Vector>
inline Vector pick(const Vector& a, const Vector& b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, kLanes...);
#else
  return __builtin_shuffle(a, b, Vector{kLanes...});
#endif
}
template <int... kLanes, class Vector>
inline Vector pick(const Vector& a) {
  return pick<kLanes...>(a, a);
}

}  // namespace owt

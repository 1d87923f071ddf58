// Vectors as wide as the registers that the compiler may use, for loops that it does not vectorise by itself.
// `Vector` is one register of floats; + - * are by lane, and a product that is added becomes one fused multiply-add.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "src/core/bf16.h"

namespace owt {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif
inline constexpr int kRegisters = kLanes == 16 ? 32 : 16;

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef uint32_t VectorU32 __attribute__((vector_size(4 * kLanes)));
typedef uint16_t VectorU16 __attribute__((vector_size(2 * kLanes)));

inline Vector all_lanes(float value) { return value - Vector{}; }  // -0 stays -0

inline Vector load(const float* from) {
  Vector lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

inline Vector load(const Bf16* from) {
  VectorU16 halves;
  std::memcpy(&halves, from, sizeof halves);
  const VectorU32 bits = __builtin_convertvector(halves, VectorU32) << 16;
  return reinterpret_cast<Vector>(bits);
}

// The bits of lanes rounded to bf16, as to_bf16() does; AVX512_BF16's instruction takes subnormal numbers for 0.
inline VectorU16 rounded_to_bf16(Vector lanes) {
#if defined(__AVX512BF16__) && defined(__AVX512F__)
  return reinterpret_cast<VectorU16>(_mm512_cvtneps_pbh(lanes));
#else
  const auto bits = reinterpret_cast<VectorU32>(lanes);
  const VectorU32 rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
  const VectorU32 chosen = (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
  return __builtin_convertvector(chosen >> 16, VectorU16);
#endif
}

inline void store(Vector lanes, float* to) { std::memcpy(to, &lanes, sizeof lanes); }

inline void store(Vector lanes, Bf16* to) {
  const VectorU16 halves = rounded_to_bf16(lanes);
  std::memcpy(to, &halves, sizeof halves);
}

// Two vectors as one of pairs of bf16: lane i holds low[i] in its lower and high[i] in its upper half.
inline VectorU32 bf16_pairs(Vector low, Vector high) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
  const __m512i in_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                            21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  return reinterpret_cast<VectorU32>(_mm512_permutexvar_epi16(in_turns, both));
#else
  return __builtin_convertvector(rounded_to_bf16(high), VectorU32) << 16 |
         __builtin_convertvector(rounded_to_bf16(low), VectorU32);
#endif
}

}  // namespace owt

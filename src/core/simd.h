// Vectors as wide as the registers that the compiler may use, for loops that it does not vectorise by itself.
// `Vector` is one register of floats; + - * are by lane, and a product that is added becomes one fused multiply-add.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
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
typedef uint8_t VectorU8 __attribute__((vector_size(kLanes)));

inline Vector all_lanes(float value) { return value - Vector{}; }  // -0 stays -0

// Conversions of integer lanes to wider or narrower types. Without intrinsics g++ 12 splits the vector into lanes. It
// also warns about the undefined lanes of intrinsics without a mask.
#if defined(__AVX512F__)
inline constexpr __mmask16 kEvery = 0xffff;
#endif
inline VectorU32 widened(VectorU16 lanes) {
#if defined(__AVX512F__)
  return reinterpret_cast<VectorU32>(_mm512_maskz_cvtepu16_epi32(kEvery, reinterpret_cast<__m256i>(lanes)));
#elif defined(__AVX2__)
  return reinterpret_cast<VectorU32>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(lanes)));
#else
  return __builtin_convertvector(lanes, VectorU32);
#endif
}
inline VectorU32 widened(VectorU8 lanes) {
#if defined(__AVX512F__)
  return reinterpret_cast<VectorU32>(_mm512_maskz_cvtepu8_epi32(kEvery, reinterpret_cast<__m128i>(lanes)));
#else
  return widened(__builtin_convertvector(lanes, VectorU16));
#endif
}
inline VectorU8 narrowed(VectorU32 lanes) {  // lanes must be below 256
#if defined(__AVX512F__)
  return reinterpret_cast<VectorU8>(_mm512_maskz_cvtepi32_epi8(kEvery, reinterpret_cast<__m512i>(lanes)));
#else
  return __builtin_convertvector(__builtin_convertvector(lanes, VectorU16), VectorU8);
#endif
}

// a > b ? a : b. g++ 12 splits it into lanes if a > b is also used elsewhere.
inline Vector larger(Vector a, Vector b) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(kEvery, a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline Vector square_root(Vector lanes) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(kEvery, lanes);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(lanes);
#else
  for (int i = 0; i < kLanes; ++i) lanes[i] = __builtin_sqrtf(lanes[i]);
  return lanes;
#endif
}

inline Vector load(const float* from) {
  Vector lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

inline Vector load(const Bf16* from) {
  VectorU16 halves;
  std::memcpy(&halves, from, sizeof halves);
  return reinterpret_cast<Vector>(widened(halves) << 16);
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
  return widened(rounded_to_bf16(high)) << 16 | widened(rounded_to_bf16(low));
#endif
}

// The number of lanes in memory: all of them, or a number that is known at run time only.
using AllLanes = std::integral_constant<int64_t, kLanes>;

// The first `count` numbers at `from`, and zeros; and the first `count` lanes to memory. Integers is VectorU8,
// VectorU16 or VectorU32.
template <class Integers>
inline Integers load_first(const void* from, int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (sizeof(Integers) == 64)
    return reinterpret_cast<Integers>(_mm512_maskz_loadu_epi32(mask, from));
  else if constexpr (sizeof(Integers) == 32)
    return reinterpret_cast<Integers>(_mm256_maskz_loadu_epi16(mask, from));
  else
    return reinterpret_cast<Integers>(_mm_maskz_loadu_epi8(mask, from));
#else
  Integers lanes{};
  std::memcpy(&lanes, from, static_cast<size_t>(count) * sizeof lanes[0]);
  return lanes;
#endif
}
template <class Integers>
inline void store_first(Integers lanes, void* to, int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  if constexpr (sizeof(Integers) == 64)
    _mm512_mask_storeu_epi32(to, mask, reinterpret_cast<__m512i>(lanes));
  else if constexpr (sizeof(Integers) == 32)
    _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(lanes));
  else
    _mm_mask_storeu_epi8(to, mask, reinterpret_cast<__m128i>(lanes));
#else
  std::memcpy(to, &lanes, static_cast<size_t>(count) * sizeof lanes[0]);
#endif
}
template <class Integers>
inline Integers load_first(const void* from, AllLanes) {
  Integers lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}
template <class Integers>
inline void store_first(Integers lanes, void* to, AllLanes) {
  std::memcpy(to, &lanes, sizeof lanes);
}

template <class Count>
inline Vector load(const float* from, Count count) {
  return reinterpret_cast<Vector>(load_first<VectorU32>(from, count));
}
template <class Count>
inline Vector load(const Bf16* from, Count count) {
  return reinterpret_cast<Vector>(widened(load_first<VectorU16>(from, count)) << 16);
}
template <class Count>
inline void store(Vector lanes, float* to, Count count) {
  store_first(reinterpret_cast<VectorU32>(lanes), to, count);
}
template <class Count>
inline void store(Vector lanes, Bf16* to, Count count) {
  store_first(rounded_to_bf16(lanes), to, count);
}

// function(first, lanes) for vectors that hold all of [0, elements) together. The last one may begin within the one
// before it, so what the function writes must not depend on what was written.
template <class Function>
inline void for_each_vector(int64_t elements, const Function& function) {
  if (elements < kLanes) return function(int64_t{0}, elements);
  for (int64_t i = 0; i + kLanes <= elements; i += kLanes) function(i, AllLanes{});
  if (elements % kLanes != 0) function(elements - kLanes, AllLanes{});
}

}  // namespace owt

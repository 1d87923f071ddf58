// The inner loop of a matrix product: a block of sums stays in registers while factors are loaded.
//
// Factors come in units of 32 bits: one float, or a pair of bf16 values for two neighbouring steps of the sum. So a
// bf16 product is a float product with half as many steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/core/simd.h"

namespace owt {

inline int64_t quotient_up(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }
inline int64_t round_up(int64_t value, int64_t multiple) { return quotient_up(value, multiple) * multiple; }

// Calls function(std::integral_constant<int, n>) for a run-time n, kLeast <= n <= kMost.
template <int kMost, int kLeast = 1, class Function>
void with_constant(int n, const Function& function) {
  if constexpr (kMost > kLeast)
    if (n < kMost) return with_constant<kMost - 1, kLeast>(n, function);
  function(std::integral_constant<int, kMost>{});
}

// Splits [0, total) into parts of almost equal size, at most `most`; calls function(first, size) for each.
template <class Function>
void in_parts(int64_t total, int64_t most, const Function& function) {
  const int64_t count = quotient_up(total, most), size = total / count, larger = total % count;
  for (int64_t part = 0, first = 0; part < count; ++part) {
    const int64_t here = size + (part < larger);
    function(first, static_cast<int>(here));
    first += here;
  }
}

// Elements in a unit.
template <class Element>
inline constexpr int kPerUnit = sizeof(float) / sizeof(Element);

// Vectors of sums in a row that fit into the registers for six rows, together with their factors.
inline constexpr int kMostVectors = kRegisters / 8;

// Whether this CPU has an instruction for products of Element.
template <class Element>
inline constexpr bool kHasProducts = std::is_same_v<Element, float>;
#if defined(__AVX512BF16__) && defined(__AVX512F__)
template <>
inline constexpr bool kHasProducts<Bf16> = true;
#endif

// The most rows of a block of `vectors` vectors whose sums fit into the registers with a row of b and an element of a.
constexpr int block_rows(int vectors) {
  const int rows = (kRegisters - 2 - vectors) / vectors;
  return rows > 12 ? 12 : rows;
}

template <class Element>
inline void add_product(const char* a, const Vector& b, Vector& sum) {
  if constexpr (std::is_same_v<Element, float>) {
    float unit;
    std::memcpy(&unit, a, sizeof unit);
    sum += all_lanes(unit) * b;
  } else {
#if defined(__AVX512BF16__) && defined(__AVX512F__)
    int32_t unit;
    std::memcpy(&unit, a, sizeof unit);
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(unit)), reinterpret_cast<__m512bh>(b));
#endif
  }
}

// sum[r][v] += sum over s < steps of a(r, s) * b(s, v). The unit a(r, s) is at a + r * a_row + s * a_step; the vector
// of units b(s, v) is at b + s * b_step + v * sizeof(Vector); all in bytes.
template <class Element, int kRows, int kVectors>
[[gnu::always_inline]] inline void multiply_add(Vector (&sum)[kRows][kVectors], const void* a, ptrdiff_t a_row,
                                                ptrdiff_t a_step, const void* b, ptrdiff_t b_step, int64_t steps) {
  const char *left = static_cast<const char*>(a), *right = static_cast<const char*>(b);
  for (int64_t s = 0; s < steps; ++s, left += a_step, right += b_step) {
    Vector row[kVectors];
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(&row[v], right + v * static_cast<ptrdiff_t>(sizeof(Vector)), sizeof(Vector));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) add_product<Element>(left + r * a_row, row[v], sum[r][v]);
  }
}

}  // namespace owt

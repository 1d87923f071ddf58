// bf16, the upper half of a float, on the host.
#pragma once

#include <bit>
#include <cstdint>

#include "src/core/tensor.h"
#include "src/system/check.h"

namespace owt {

// Rounds to nearest, ties to even; NaN stays NaN.
inline uint16_t to_bf16(float value) {
  // Integer arithmetic only, so that loops around it have no branch.
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
  return static_cast<uint16_t>(((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded) >> 16);
}

// Rounds f32 values on the host.
inline Tensor to_bf16(const Tensor& values) {
  Tensor rounded(values.shape(), DType::kBF16);
  auto* to = static_cast<uint16_t*>(rounded.raw());
  for (int64_t i = 0; i < values.elements(); ++i) to[i] = to_bf16(values.data()[i]);
  return rounded;
}

inline float from_bf16(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

// An element of a tensor in bf16. Arithmetic on it is f32; the result is rounded when it is stored.
struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  Bf16(float value) : bits(to_bf16(value)) {}
  operator float() const { return from_bf16(bits); }
};

// at = value, for loops marked simd: g++ does not vectorise loops that construct objects.
inline void keep(float value, float& at) { at = value; }
inline void keep(float value, Bf16& at) { at.bits = to_bf16(value); }

template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::kBF16;
};

// Calls function(T{}) with the element type T of activations on the CPU.
template <class Function>
void with_cpu_element(DType dtype, const Function& function) {
  if (dtype == DType::kF32) return function(float{});
  OWT_CHECK(dtype == DType::kBF16, "activations hold f32 or bf16, not ", name_of(dtype));
  function(Bf16{});
}

}  // namespace owt

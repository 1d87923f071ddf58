// bf16, the upper half of a float, on the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "src/core/tensor.h"

namespace owt {

// To nearest, ties to even; NaN stays NaN.
inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// f32 values on the host, rounded.
inline Tensor to_bf16(const Tensor& values) {
  Tensor rounded(values.shape(), DType::kBF16);
  auto* to = static_cast<uint16_t*>(rounded.raw());
  for (int64_t i = 0; i < values.elements(); ++i) to[i] = to_bf16(values.data()[i]);
  return rounded;
}

inline float from_bf16(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

}  // namespace owt

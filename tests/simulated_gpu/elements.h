// Element types of the simulated libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace simulated_gpu {

enum class ElementType { kNone, kF32, kBf16 };

inline size_t bytes_of(ElementType type) { return type == ElementType::kBf16 ? 2 : 4; }

inline float bf16_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// To the nearest, of two as near the even one.
inline uint16_t float_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// To 10 bits of mantissa: the factors of products on tensor cores.
inline float round_to_tf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7f800000) == 0x7f800000) return value;  // infinite or NaN
  bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float load(const void* base, ElementType type, int64_t index) {
  return type == ElementType::kBf16 ? bf16_to_float(static_cast<const uint16_t*>(base)[index])
                                    : static_cast<const float*>(base)[index];
}

inline void store(void* base, ElementType type, int64_t index, float value) {
  if (type == ElementType::kBf16)
    static_cast<uint16_t*>(base)[index] = float_to_bf16(value);
  else
    static_cast<float*>(base)[index] = value;
}

}  // namespace simulated_gpu

// Uniform integers from random bits, on the host and on devices.
#pragma once

#include <cstdint>

namespace owt {

// An integer from 0 to bound - 1: the high half of the product. No integer is favoured by more than bound / 2^32, or
// 2^64.
template <class Int>
constexpr Int below(Int bound, uint32_t bits) {
  return static_cast<Int>(bits * static_cast<uint64_t>(bound) >> 32);
}
template <class Int>
constexpr Int below(Int bound, uint64_t bits) {
  return static_cast<Int>(static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(bound) >> 64);
}

}  // namespace owt

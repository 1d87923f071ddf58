// How a chain of ranks passes a tensor on (broadcast, reduce): in chunks, so that a rank sends one while the next one
// comes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace owt {

// Bytes of a chunk where `ranks` pass on `bytes`: a multiple of 64, at most 512 KiB. The last rank gets its first chunk
// when all between it and the first have had it; chunks are so small that this adds about an eighth to the time of the
// whole, and not so small that messages cost more than what is in them.
inline int64_t chain_chunk(int64_t bytes, int ranks) {
  constexpr int64_t kLeast = 32 << 10, kMost = 512 << 10;
  if (ranks <= 2) return kMost;
  return std::clamp(bytes / (8 * (ranks - 2)) / 64 * 64, kLeast, kMost);
}

}  // namespace owt

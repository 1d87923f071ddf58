// Chunk size for a tensor that a chain of ranks passes on (broadcast, reduce). A rank sends one chunk while it receives
// the next.
#pragma once

#include <algorithm>
#include <cstdint>

namespace owt {

// Bytes of a chunk if `ranks` ranks pass on `bytes` bytes: a multiple of 64, at most 512 KiB. The last rank gets its
// first chunk after all ranks before it. Chunks are small enough that this delay adds about an eighth to the whole
// time. They are large enough that the cost per message does not dominate.
inline int64_t chain_chunk(int64_t bytes, int ranks) {
  constexpr int64_t kLeast = 32 << 10, kMost = 512 << 10;
  if (ranks <= 2) return kMost;
  return std::clamp(bytes / (8 * (ranks - 2)) / 64 * 64, kLeast, kMost);
}

}  // namespace owt

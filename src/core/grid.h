// The number of blocks of threads for a number of items.
#pragma once

#include <algorithm>
#include <cstdint>

namespace owt {

constexpr unsigned kBlockThreads = 256;

// For kernels with one thread per item; at least one block for at least one item.
inline unsigned blocks_for(int64_t items, unsigned threads = kBlockThreads) {
  return static_cast<unsigned>((items + threads - 1) / threads);
}

// For kernels whose threads stride over the items: enough blocks to fill the largest GPUs several times over.
inline unsigned striding_blocks_for(int64_t items, unsigned threads = kBlockThreads) {
  return static_cast<unsigned>(std::min<int64_t>(blocks_for(items, threads), 132 * 16));
}

}  // namespace owt

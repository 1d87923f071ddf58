// Memory shared by all convolutions and dense layers of a host thread; it grows to the largest request. It is not
// Pass::scratch, because the size is known only when a pass is made. That happens when it first runs, or runs with
// another team, and includes measurements that use this memory.
#pragma once

#include <cstddef>

namespace owt {

enum class ConvBuffer { kScratchpad, kWeights, kBias, kTiles, kCount };

// At least this many bytes, aligned to 64. Previous contents may be lost.
void* conv_workspace(ConvBuffer buffer, size_t bytes);

}  // namespace owt

// Memory that all convolutions of a host thread, and its dense layers, share; it grows to the largest. It is not
// Pass::scratch: how much a pass needs is known when it is made, which is when it first runs, or runs with another
// team, and making one measures, in the same memory.
#pragma once

#include <cstddef>

namespace owt {

enum class ConvBuffer { kScratchpad, kWeights, kBias, kTiles, kCount };

// At least so many bytes, at a multiple of 64; what it held before may be lost.
void* conv_workspace(ConvBuffer buffer, size_t bytes);

}  // namespace owt

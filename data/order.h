// The order in which an epoch visits the samples.
#pragma once

#include <cstdint>
#include <vector>

namespace owt {

// A permutation of 0 .. size-1 as a function of (seed, epoch, size): Fisher-Yates with Philox
// (RandomStream::kShuffle). Without `shuffle`: 0 .. size-1 in order.
std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size, bool shuffle);

}  // namespace owt

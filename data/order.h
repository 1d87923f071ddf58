// The order of the samples in an epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "src/core/philox.h"

namespace owt {

// A permutation of 0 .. size-1 that depends on the random numbers only: Fisher-Yates.
std::vector<int64_t> permutation(const Philox& random, int64_t size);

// The permutation of (seed, epoch, size), RandomStream::kShuffle. Without `shuffle`: 0 .. size-1 in order.
std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size, bool shuffle);

}  // namespace owt

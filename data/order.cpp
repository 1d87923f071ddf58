#include "data/order.h"

#include <numeric>
#include <utility>

#include "src/core/philox.h"

namespace owt {
namespace {

// Uniform in [0, bound): the high half of a 64-bit number times the bound. No value is preferred by more than
// bound / 2^64.
uint64_t below(uint64_t bound, uint64_t bits) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * bound >> 64);
}

}  // namespace

std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size, bool shuffle) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  const Philox random(seed, RandomStream::kShuffle, static_cast<uint64_t>(epoch));
  for (size_t last = order.size(); last-- > 1;) {
    const auto bits = random.block(last);
    const uint64_t other = below(last + 1, static_cast<uint64_t>(bits[0]) << 32 | bits[1]);
    std::swap(order[last], order[other]);
  }
  return order;
}

}  // namespace owt

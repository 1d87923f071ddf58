#include "data/order.h"

#include <numeric>
#include <utility>

#include "src/core/philox.h"
#include "src/core/uniform.h"

namespace owt {

std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size, bool shuffle) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  const Philox random(seed, RandomStream::kShuffle, static_cast<uint64_t>(epoch));
  for (size_t last = order.size(); last-- > 1;) {
    const auto bits = random.block(last);
    std::swap(order[last], order[below(last + 1, uint64_t{bits[0]} << 32 | bits[1])]);
  }
  return order;
}

}  // namespace owt

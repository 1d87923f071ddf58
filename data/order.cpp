#include "data/order.h"

#include <numeric>
#include <utility>

#include "src/core/uniform.h"

namespace owt {
namespace {

std::vector<int64_t> counted(int64_t size) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

}  // namespace

std::vector<int64_t> permutation(const Philox& random, int64_t size) {
  std::vector<int64_t> order = counted(size);
  for (size_t last = order.size(); last-- > 1;) {
    const auto bits = random.block(last);
    std::swap(order[last], order[below(last + 1, uint64_t{bits[0]} << 32 | bits[1])]);
  }
  return order;
}

std::vector<int64_t> epoch_order(uint64_t seed, int64_t epoch, int64_t size, bool shuffle) {
  if (!shuffle) return counted(size);
  return permutation(Philox(seed, RandomStream::kShuffle, epoch), size);
}

}  // namespace owt

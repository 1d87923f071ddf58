#include "data/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace owt::order_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Order, IsAPermutation) {
  for (const int64_t size : {1, 2, 3, 10, 1000}) {
    auto order = epoch_order(5, 2, size, true);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, epoch_order(5, 2, size, false)) << size;
  }
}

TEST(Order, CountsUpWithoutShuffling) { EXPECT_THAT(epoch_order(5, 2, 4, false), ElementsAre(0, 1, 2, 3)); }

TEST(Order, OfNothingIsEmpty) { EXPECT_THAT(epoch_order(5, 2, 0, true), IsEmpty()); }

TEST(Order, IsAFunctionOfSeedAndEpoch) {
  EXPECT_EQ(epoch_order(5, 2, 100, true), epoch_order(5, 2, 100, true));
  EXPECT_NE(epoch_order(5, 2, 100, true), epoch_order(5, 3, 100, true));
  EXPECT_NE(epoch_order(5, 2, 100, true), epoch_order(6, 2, 100, true));
}

TEST(Order, GivesEveryPermutationEquallyOften) {
  constexpr int64_t kEpochs = 6000;
  std::map<std::vector<int64_t>, int64_t> counts;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) ++counts[epoch_order(1, epoch, 3, true)];
  ASSERT_EQ(counts.size(), 6u);
  // 1000 each; a standard deviation is 29.
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, kEpochs / 6, 150);
}

}  // namespace
}  // namespace owt::order_test

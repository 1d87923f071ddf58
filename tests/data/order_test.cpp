#include "data/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/data/batches.h"

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

MemoryDataset of_counts(const std::vector<int64_t>& counts) { return images_of_counts(counts, {1, 1, 1}); }

std::vector<SampleDraw> draws_of_epochs(const EpochOrders& orders, int64_t epochs) {
  std::vector<SampleDraw> all;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (const SampleDraw& draw : orders.draws(epoch)) all.push_back(draw);
  return all;
}

TEST(UniformOrders, ShowEveryImageOnceInAnEpochWhichIsThePass) {
  const MemoryDataset images = of_counts({3, 40, 7});
  for (const bool shuffle : {false, true}) {
    const EpochOrders orders(images, 5, shuffle, Sampling::kUniform);
    for (const int64_t epoch : {0, 3}) {
      const std::vector<int64_t> wanted = epoch_order(5, epoch, 50, shuffle);
      const std::vector<SampleDraw> draws = orders.draws(epoch);
      ASSERT_EQ(draws.size(), wanted.size());
      for (size_t i = 0; i < draws.size(); ++i)
        EXPECT_EQ(draws[i], (SampleDraw{static_cast<uint32_t>(wanted[i]), static_cast<uint32_t>(epoch)}));
    }
  }
}

// 4 classes of 1, 96, 2 and 21 images, and one without: 30 images of each in an epoch of 120.
TEST(BalancedOrders, ShowEveryClassEquallyOftenInEveryEpoch) {
  const MemoryDataset images = of_counts({1, 96, 0, 2, 21});
  const EpochOrders orders(images, 5, true, Sampling::kBalanced);
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> counts(5);
    for (const SampleDraw& draw : orders.draws(epoch)) ++counts[static_cast<size_t>(images.label(draw.sample))];
    EXPECT_THAT(counts, ElementsAre(30, 30, 0, 30, 30)) << epoch;
  }
}

// 3 classes and 8 images: an epoch ends within a round.
TEST(BalancedOrders, ShowEveryClassOnceInARoundAlsoOverTheEndOfAnEpoch) {
  const MemoryDataset images = of_counts({1, 5, 2});
  const auto draws = draws_of_epochs(EpochOrders(images, 5, true, Sampling::kBalanced), 30);
  ASSERT_EQ(draws.size(), 240u);
  std::set<std::vector<int>> orders;
  for (size_t first = 0; first < draws.size(); first += 3) {
    std::vector<int> labels;
    for (size_t i = first; i < first + 3; ++i) labels.push_back(images.label(draws[i].sample));
    orders.insert(labels);
    std::sort(labels.begin(), labels.end());
    EXPECT_THAT(labels, ElementsAre(0, 1, 2)) << "round " << first / 3;
  }
  EXPECT_EQ(orders.size(), 6u);  // all orders of the classes occur
}

TEST(BalancedOrders, ShowAllImagesOfAClassBeforeOneComesAgain) {
  const MemoryDataset images = of_counts({1, 5, 2, 40});
  std::vector<std::vector<SampleDraw>> of_class(4);
  for (const SampleDraw& draw : draws_of_epochs(EpochOrders(images, 5, true, Sampling::kBalanced), 20))
    of_class[static_cast<size_t>(images.label(draw.sample))].push_back(draw);
  const std::vector<int64_t> counts = images_of_classes(images);
  for (size_t c = 0; c < of_class.size(); ++c) {
    ASSERT_EQ(of_class[c].size(), 240u);
    std::set<std::vector<uint32_t>> orders;
    const auto count = static_cast<size_t>(counts[c]);
    for (size_t pass = 0; pass < 240 / count; ++pass) {
      std::vector<uint32_t> shown;
      for (size_t i = pass * count; i < (pass + 1) * count; ++i) {
        shown.push_back(of_class[c][i].sample);
        EXPECT_EQ(of_class[c][i].pass, pass);
      }
      orders.insert(shown);
      EXPECT_EQ(std::set<uint32_t>(shown.begin(), shown.end()).size(), count) << "class " << c << ", pass " << pass;
    }
    EXPECT_EQ(orders.size() > 1, count > 1) << "class " << c;  // each pass has an order of its own
  }
}

TEST(BalancedOrders, OfClassesOfEqualSizeShuffleEachByItself) {
  const MemoryDataset images = of_counts({12, 12});
  std::vector<std::vector<uint32_t>> of_class(2);
  for (const SampleDraw& draw : EpochOrders(images, 5, true, Sampling::kBalanced).draws(0))
    of_class[static_cast<size_t>(images.label(draw.sample))].push_back(draw.sample / 2);
  EXPECT_NE(of_class[0], of_class[1]);
}

TEST(BalancedOrders, AreAFunctionOfSeedAndEpoch) {
  const MemoryDataset images = of_counts({3, 40, 7});
  const auto of = [&](uint64_t seed, int64_t epoch) {
    return EpochOrders(images, seed, true, Sampling::kBalanced).draws(epoch);
  };
  EXPECT_EQ(of(5, 2), of(5, 2));
  EXPECT_NE(of(5, 2), of(5, 3));
  EXPECT_NE(of(5, 2), of(6, 2));
}

}  // namespace
}  // namespace owt::order_test

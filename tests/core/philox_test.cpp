#include "src/core/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace owt::philox_test {
namespace {

using ::testing::ElementsAre;

// Known answers of the algorithm's authors (Random123, kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, TheGeneratorGivesTheKnownAnswers) {
  const r123::Philox4x32 generator;
  EXPECT_THAT(generator({{0, 0, 0, 0}}, {{0, 0}}), ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_THAT(generator({{kOnes, kOnes, kOnes, kOnes}}, {{kOnes, kOnes}}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
}

// The third of the known answers. The name was chosen so that its hash ends in the last word of that counter, 03707344;
// stream number 3 is its first byte.
TEST(Philox, KeyAndCounterAreSeedElementStepAndPurpose) {
  const Philox random(0x299f31d0a4093822u, RandomStream::kShuffle, 0x13198a2eu, "3449416");
  EXPECT_THAT(random.block(0x85a308d3243f6a88u), ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Philox, EveryPartOfTheAddressChangesTheNumbers) {
  const Philox base(5, RandomStream::kInit, 2, "conv1");
  const auto first = base.block(0);
  EXPECT_NE(Philox(6, RandomStream::kInit, 2, "conv1").block(0), first);
  EXPECT_NE(Philox(5 + (uint64_t{1} << 32), RandomStream::kInit, 2, "conv1").block(0), first);
  EXPECT_NE(Philox(5, RandomStream::kDropout, 2, "conv1").block(0), first);
  EXPECT_NE(Philox(5, RandomStream::kInit, 3, "conv1").block(0), first);
  EXPECT_NE(Philox(5, RandomStream::kInit, 2, "conv2").block(0), first);
  EXPECT_NE(base.block(1), first);
  EXPECT_NE(base.block(uint64_t{1} << 32), first);
}

TEST(Philox, ANumberDependsOnNoOrderOfCalls) {
  const Philox random(7, RandomStream::kTest);
  std::vector<float> forward, backward;
  for (uint64_t i = 0; i < 100; ++i) forward.push_back(random.uniform(i));
  for (uint64_t i = 100; i-- > 0;) backward.push_back(Philox(7, RandomStream::kTest).uniform(i));
  EXPECT_EQ(forward, std::vector<float>(backward.rbegin(), backward.rend()));
}

TEST(Philox, ElementsAreTheFourNumbersOfTheirBlock) {
  const Philox random(7, RandomStream::kTest);
  const auto block = random.block(3);
  EXPECT_EQ(random.bits(12), block[0]);
  EXPECT_EQ(random.bits(15), block[3]);
}

TEST(Philox, UniformNumbersLieFromZeroToBelowOne) {
  EXPECT_EQ(Philox::to_uniform(0), 0.0f);
  EXPECT_LT(Philox::to_uniform(0xffffffffu), 1.0f);
  EXPECT_EQ(Philox::to_uniform(0x80000000u), 0.5f);
}

TEST(Philox, UniformNumbersHaveTheirMeanAndVariance) {
  const Philox random(1, RandomStream::kTest);
  constexpr int kDraws = 100'000;
  double sum = 0, squares = 0;
  std::set<uint32_t> distinct;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = random.uniform(i);
    sum += u, squares += u * u;
    distinct.insert(random.bits(i));
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.5, 0.004);  // 4 standard errors
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.0 / 12, 0.001);
  EXPECT_GT(distinct.size(), kDraws - 20u);
}

TEST(Philox, NormalNumbersHaveTheirMeanVarianceAndTails) {
  const Philox random(1, RandomStream::kTest);
  constexpr int kDraws = 100'000;
  double sum = 0, squares = 0, neighbours = 0, pairs = 0;
  int beyond_two = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double z = random.normal(i);
    ASSERT_TRUE(std::isfinite(z));
    sum += z, squares += z * z, beyond_two += std::abs(z) > 2;
    if (i % 2 == 0) neighbours += z * static_cast<double>(random.normal(i + 1));
    if (i % 4 == 0) pairs += z * static_cast<double>(random.normal(i + 2));
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.0127);  // 4 standard errors each
  EXPECT_NEAR(squares / kDraws, 1, 0.018);
  EXPECT_NEAR(neighbours / (kDraws / 2), 0, 0.018);  // the two of a pair are independent
  EXPECT_NEAR(pairs / (kDraws / 4), 0, 0.026);       // and the two pairs of a block
  EXPECT_NEAR(beyond_two / static_cast<double>(kDraws), 0.0455, 0.0027);
}

}  // namespace
}  // namespace owt::philox_test

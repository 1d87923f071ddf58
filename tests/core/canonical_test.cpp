#include "src/core/canonical.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace owt::canonical_test {
namespace {

// From 1e-14 to 1e2, of both signs.
std::vector<double> terms() {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-14, 2), sign(-1, 1);
  std::vector<double> all(5000);
  for (double& term : all) term = static_cast<float>(std::copysign(std::pow(10, exponent(random)), sign(random)));
  return all;
}

TEST(Canonical, ASumHasTheSameBitsInAnyOrderAndInAnyParts) {
  std::vector<double> all = terms();
  for (double& term : all) term = canonical(term);
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  std::mt19937 random(2);
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(all.begin(), all.end(), random);
    const auto middle = all.begin() + static_cast<int64_t>(random() % all.size());
    const double first = std::accumulate(all.begin(), middle, 0.0), rest = std::accumulate(middle, all.end(), 0.0);
    ASSERT_EQ(std::accumulate(all.begin(), all.end(), 0.0), sum);
    ASSERT_EQ(first + rest, sum);
  }
}

TEST(Canonical, ATermIsRoundedToTheNearestMultipleOfTheUnit) {
  for (const double unit : {kCanonicalUnit, kCanonicalAverageUnit})
    for (const double term : {0.0, 0.3, -0.3, 1.6, -7.4, 1234.7, -123456.2})
      EXPECT_EQ(canonical(term * unit, unit), std::nearbyint(term) * unit) << term;
}

TEST(Canonical, WhatIsNotFiniteStaysVisible) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(canonical(infinity), infinity);
  EXPECT_EQ(canonical(-infinity), -infinity);
  EXPECT_TRUE(std::isnan(canonical(std::numeric_limits<double>::quiet_NaN())));
}

TEST(Canonical, ABlockHasSoManyRowsThatAStepHasAtLeastSixteen) {
  for (const int64_t rows : {1, 2, 15, 31, 32, 63, 64, 100, 127, 128, 4096}) {
    const int64_t block = canonical_rows(rows);
    EXPECT_TRUE(block == 1 || 16 * block <= rows) << rows;
    EXPECT_TRUE(block == 8 || 32 * block > rows) << rows;
  }
}

// So a rank finds the blocks of the whole layer in its own part.
TEST(Canonical, PartsOfFeaturesConsistOfBlocksOfTheWhole) {
  for (const int64_t features : {1, 7, 10, 64, 100, 1000, 4096})
    for (const int parts : {1, 2, 3, 8, 17}) {
      const std::vector<int64_t> whole = canonical_feature_ends(features, features);
      std::vector<int64_t> ends;
      int64_t begin = 0;
      for (int part = 0; part < parts; ++part) {
        const Slice mine = canonical_part(features, parts, part);
        ASSERT_EQ(mine.begin, begin) << features << " in " << parts;
        ASSERT_LE(mine.size(), canonical_part(features, parts, 0).size());
        for (const int64_t end : canonical_feature_ends(mine.size(), features)) ends.push_back(mine.begin + end);
        begin = mine.end;
      }
      ASSERT_EQ(ends, whole) << features << " in " << parts;
    }
}

}  // namespace
}  // namespace owt::canonical_test

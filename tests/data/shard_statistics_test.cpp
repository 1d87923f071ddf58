// Principal colours; shards_test.cpp tests the sums over images.
#include "data/shard_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace owt::shard_statistics_test {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

// The sum of value * vector * vector', the vectors being orthogonal and of length 1.
std::vector<double> covariance_of(const std::vector<double>& values, const std::vector<double>& vectors) {
  std::vector<double> covariance(9, 0.0);
  for (size_t i = 0; i < 3; ++i)
    for (size_t a = 0; a < 3; ++a)
      for (size_t b = 0; b < 3; ++b) covariance[a * 3 + b] += values[i] * vectors[i * 3 + a] * vectors[i * 3 + b];
  return covariance;
}

// Signs are chosen so that the components of a vector have a positive sum, whatever the library returns.
TEST(ColoursOfStatistics, AreTheEigenvectorsTheLargestFirstAndTowardsTheBright) {
  const double t = 1.0 / 3;
  const std::vector<std::vector<double>> bases = {{-t, 2 * t, 2 * t, 2 * t, -t, 2 * t, 2 * t, 2 * t, -t},
                                                  {2 * t, 2 * t, -t, -t, 2 * t, 2 * t, 2 * t, -t, 2 * t},
                                                  {1, 0, 0, 0, 0, 1, 0, 1, 0}};
  for (const std::vector<double>& vectors : bases) {
    const std::vector<double> values{900, 50, 4};
    DatasetStatistics statistics;
    set_colours(statistics, {10, 20, 30}, covariance_of(values, vectors));
    EXPECT_THAT(statistics.eigenvalues, Pointwise(DoubleNear(1e-9), values));
    EXPECT_THAT(statistics.eigenvectors, Pointwise(DoubleNear(1e-9), vectors));
    EXPECT_EQ(statistics.channel_mean, (std::vector<double>{10, 20, 30}));
    for (size_t c = 0; c < 3; ++c)
      EXPECT_DOUBLE_EQ(statistics.channel_std[c], std::sqrt(statistics.covariance[c * 3 + c]));
  }
}

TEST(ColoursOfStatistics, OfOneColourNothingVaries) {
  DatasetStatistics statistics;
  set_colours(statistics, {1, 2, 3}, std::vector<double>(9, 0.0));
  EXPECT_EQ(statistics.channel_std, std::vector<double>(3, 0.0));
  EXPECT_EQ(statistics.eigenvalues, std::vector<double>(3, 0.0));
}

}  // namespace
}  // namespace owt::shard_statistics_test

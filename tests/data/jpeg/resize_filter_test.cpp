#include "data/jpeg/resize_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace owt::resize_filter_test {
namespace {

using testing::ElementsAre;

std::vector<int> weights_of(int64_t in, int64_t out, int64_t place) {
  const ResizeFilter filter{in, out};
  std::vector<uint16_t> weights(static_cast<size_t>(filter.taps()));
  filter.weigh(place, weights.data());
  return {weights.begin(), weights.end()};
}

// Half as many places: heights 3/4, 3/4, 1/4 and 0 of a sum of 7/4. The first weight loses what rounding adds.
TEST(ResizeFilter, HasATriangleForEachPlace) {
  EXPECT_THAT(weights_of(4, 2, 0), ElementsAre(109, 110, 37, 0));
  EXPECT_THAT(weights_of(8, 4, 1), ElementsAre(32, 96, 96, 32));
  EXPECT_EQ((ResizeFilter{8, 4}.first(1)), 1);
}

TEST(ResizeFilter, InterpolatesBetweenTwoPlacesToEnlarge) {
  EXPECT_THAT(weights_of(2, 4, 0), ElementsAre(256, 0));
  EXPECT_THAT(weights_of(2, 4, 1), ElementsAre(192, 64));
  EXPECT_THAT(weights_of(1, 5, 3), ElementsAre(256));
}

TEST(ResizeFilter, OfAsManyPlacesCopies) {
  for (int64_t place = 0; place < 9; ++place) {
    const std::vector<int> weights = weights_of(9, 9, place);
    const int64_t first = ResizeFilter{9, 9}.first(place);
    EXPECT_EQ(weights[static_cast<size_t>(place - first)], 256);
  }
}

TEST(ResizeFilter, StaysWithinTheImageAndKeepsThePlainColour) {
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1, 224}, {223, 224}, {341, 224}, {3000, 7}, {65535, 32}}) {
    const ResizeFilter filter{in, out};
    for (int64_t place = 0; place < out; ++place) {
      const std::vector<int> weights = weights_of(in, out, place);
      EXPECT_EQ(std::accumulate(weights.begin(), weights.end(), 0), 256);
      EXPECT_GE(filter.first(place), 0);
      EXPECT_LE(filter.first(place) + filter.taps(), in);
    }
  }
}

}  // namespace
}  // namespace owt::resize_filter_test

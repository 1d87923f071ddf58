#include "data/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/support/shards.h"

namespace owt::resize_test {
namespace {

using testing::Each;

// The triangle filter along one side, in double precision.
std::vector<double> resized_side(const std::vector<double>& in, int64_t out_extent) {
  const auto extent = static_cast<double>(in.size()), scale = extent / static_cast<double>(out_extent);
  const double reach = std::max(scale, 1.0);
  std::vector<double> out;
  for (int64_t x = 0; x < out_extent; ++x) {
    double sum = 0, total = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double center = (static_cast<double>(x) + 0.5) * scale, at = static_cast<double>(i) + 0.5;
      const double weight = std::max(0.0, 1 - std::abs(at - center) / reach);
      sum += weight * in[i];
      total += weight;
    }
    out.push_back(sum / total);
  }
  return out;
}

std::vector<double> expected(const Photo& photo, int64_t side) {
  std::vector<double> narrow(static_cast<size_t>(photo.height * side * 3)), out(static_cast<size_t>(side * side * 3));
  for (int64_t y = 0; y < photo.height; ++y)
    for (int64_t c = 0; c < 3; ++c) {
      std::vector<double> line;
      for (int64_t x = 0; x < photo.width; ++x)
        line.push_back(photo.pixels[static_cast<size_t>((y * photo.width + x) * 3 + c)]);
      line = resized_side(line, side);
      for (int64_t x = 0; x < side; ++x)
        narrow[static_cast<size_t>((y * side + x) * 3 + c)] = line[static_cast<size_t>(x)];
    }
  for (int64_t e = 0; e < side * 3; ++e) {
    std::vector<double> line;
    for (int64_t y = 0; y < photo.height; ++y) line.push_back(narrow[static_cast<size_t>(y * side * 3 + e)]);
    line = resized_side(line, side);
    for (int64_t y = 0; y < side; ++y) out[static_cast<size_t>(y * side * 3 + e)] = line[static_cast<size_t>(y)];
  }
  return out;
}

std::vector<uint8_t> resized_to(Resizer& resizer, const Photo& photo, int64_t side) {
  std::vector<uint8_t> out(static_cast<size_t>(side * side * 3));
  resizer.run(photo.pixels.data(), photo.height, photo.width, 3, side, out.data());
  return out;
}

TEST(Resize, IsTheTriangleFilterUpToRounding) {
  Resizer resizer;
  for (const auto& [height, width, side] : {std::array<int64_t, 3>{20, 30, 48},
                                            {48, 48, 48},
                                            {100, 80, 48},
                                            {33, 130, 31},
                                            {1, 1, 5},
                                            {7, 200, 10},
                                            {3, 2, 224}}) {
    const Photo photo = made_photo(3, height, width);
    const std::vector<uint8_t> found = resized_to(resizer, photo, side);
    const std::vector<double> wanted = expected(photo, side);
    double mean = 0, most = 0;
    for (size_t e = 0; e < wanted.size(); ++e) {
      const double difference = std::abs(found[e] - wanted[e]);
      mean += difference / static_cast<double>(wanted.size());
      most = std::max(most, difference);
    }
    EXPECT_LT(most, 2.5) << height << " x " << width << " to " << side;
    EXPECT_LT(mean, 0.6) << height << " x " << width << " to " << side;
  }
}

// `count` values `stride` apart, weighted in 256ths: weights are rounded, and the remainder is added to the largest.
uint8_t rounded_place(const uint8_t* in, int64_t count, int64_t stride, int64_t out_extent, int64_t x) {
  const double scale = static_cast<double>(count) / static_cast<double>(out_extent), reach = std::max(scale, 1.0);
  std::vector<double> exact;
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double distance = std::abs(static_cast<double>(i) + 0.5 - (static_cast<double>(x) + 0.5) * scale);
    exact.push_back(std::max(0.0, 1 - distance / reach));
    total += exact.back();
  }
  std::vector<int64_t> weights;
  int64_t rest = 256, sum = 128;
  for (const double weight : exact) {
    weights.push_back(std::lround(weight / total * 256));
    rest -= weights.back();
  }
  *std::max_element(weights.begin(), weights.end()) += rest;
  for (int64_t i = 0; i < count; ++i) sum += weights[static_cast<size_t>(i)] * in[i * stride];
  return static_cast<uint8_t>(sum / 256);
}

TEST(Resize, RoundsWeightsTo256thsAndPixelsToTheNearest) {
  Resizer resizer;
  for (const auto& [height, width, side] : {std::array<int64_t, 3>{20, 30, 48},
                                            {48, 48, 48},
                                            {97, 83, 48},
                                            {33, 131, 31},
                                            {32, 64, 11},
                                            {7, 200, 10},
                                            {3, 2, 40}}) {
    Photo photo = made_photo(5, height, width);
    photo.pixels[0] = 255, photo.pixels.back() = 0;
    const std::vector<uint8_t> found = resized_to(resizer, photo, side);
    std::vector<uint8_t> narrow(static_cast<size_t>(height * side * 3)), wanted(static_cast<size_t>(side * side * 3));
    for (int64_t y = 0; y < height; ++y)
      for (int64_t e = 0; e < side * 3; ++e)
        narrow[static_cast<size_t>(y * side * 3 + e)] =
            rounded_place(photo.pixels.data() + y * width * 3 + e % 3, width, 3, side, e / 3);
    for (int64_t y = 0; y < side; ++y)
      for (int64_t e = 0; e < side * 3; ++e)
        wanted[static_cast<size_t>(y * side * 3 + e)] = rounded_place(narrow.data() + e, height, side * 3, side, y);
    EXPECT_EQ(found, wanted) << height << " x " << width << " to " << side;
  }
}

TEST(Resize, OneChannelBecomesWhatItBecomesAmongThree) {
  Resizer resizer;
  for (const auto& [height, width, side] :
       {std::array<int64_t, 3>{20, 30, 48}, {97, 83, 48}, {33, 131, 31}, {7, 200, 10}, {3, 2, 40}, {64, 64, 56}}) {
    const Photo photo = made_photo(9, height, width);
    const std::vector<uint8_t> together = resized_to(resizer, photo, side);
    for (size_t c = 0; c < 3; ++c) {
      std::vector<uint8_t> plane, wanted, found(static_cast<size_t>(side * side));
      for (size_t e = c; e < photo.pixels.size(); e += 3) plane.push_back(photo.pixels[e]);
      for (size_t e = c; e < together.size(); e += 3) wanted.push_back(together[e]);
      resizer.run(plane.data(), height, width, 1, side, found.data());
      EXPECT_EQ(found, wanted) << height << " x " << width << " to " << side;
    }
  }
}

TEST(Resize, APlainSurfaceKeepsItsColour) {
  Resizer resizer;
  for (const uint8_t colour : {0, 1, 127, 255}) {
    const Photo photo{37, 91, std::vector<uint8_t>(37 * 91 * 3, colour)};
    for (const int64_t side : {1, 20, 64, 150}) EXPECT_THAT(resized_to(resizer, photo, side), Each(colour)) << side;
  }
}

}  // namespace
}  // namespace owt::resize_test

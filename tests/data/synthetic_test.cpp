#include "data/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "data/memory_dataset.h"
#include "src/core/threads.h"
#include "tests/support/linear_classifier.h"

namespace owt::synthetic_test {
namespace {

std::vector<uint8_t> image(const Dataset& dataset, int64_t index) {
  std::vector<uint8_t> pixels(static_cast<size_t>(dataset.image().elements()));
  dataset.read(index, View{}, pixels.data());
  return pixels;
}

bool same(const Dataset& a, const Dataset& b, int64_t images) {
  for (int64_t i = 0; i < images; ++i)
    if (a.label(i) != b.label(i) || image(a, i) != image(b, i)) return false;
  return true;
}

TEST(Synthetic, ImageIsAFunctionOfSeedSplitAndIndex) {
  const SyntheticDataset few({.size = 20, .seed = 3}), many({.size = 50, .seed = 3});
  EXPECT_TRUE(same(few, many, 20));
  EXPECT_NE(image(few, 0), image(few, 10));
  EXPECT_NE(image(few, 0), image(SyntheticDataset({.size = 1, .seed = 4}), 0));
  EXPECT_NE(image(few, 0), image(SyntheticDataset({.size = 1, .seed = 3, .split = Split::kTest}), 0));
}

TEST(Synthetic, DoesNotDependOnTheNumberOfThreads) {
  const int before = team_size();
  set_team_size(1);
  const SyntheticDataset one({.size = 100, .seed = 3});
  set_team_size(3);
  const SyntheticDataset three({.size = 100, .seed = 3});
  set_team_size(before);
  EXPECT_TRUE(same(one, three, 100));
}

TEST(Synthetic, CopiesHaveTheSameChecksumAndOtherImagesOrLabelsAnother) {
  const auto checksum = [](std::vector<uint8_t> pixels, std::vector<uint8_t> labels) {
    return MemoryDataset({1, 1, 1}, 3, std::move(pixels), std::move(labels)).checksum();
  };
  EXPECT_EQ(checksum({7, 8}, {0, 2}), checksum({7, 8}, {0, 2}));
  EXPECT_NE(checksum({7, 8}, {0, 2}), checksum({8, 7}, {0, 2}));
  EXPECT_NE(checksum({7, 8}, {0, 2}), checksum({7, 8}, {2, 0}));
}

TEST(Synthetic, HasTheSizeSideAndClassesAskedFor) {
  const SyntheticDataset images({.size = 7, .side = 48, .classes = 3});
  EXPECT_EQ(images.size(), 7);
  EXPECT_EQ(images.image(), (Shape{48, 48, 3}));
  EXPECT_THAT(images.class_names(), testing::ElementsAre("disc", "ring", "square"));
  EXPECT_EQ(images.label(5), 2);
}

// The first three channels are red, green and blue. Later ones show them again, with other noise.
TEST(Synthetic, ChannelsShowTheColoursInTurn) {
  const SyntheticDataset three({.size = 20, .seed = 3}), five({.size = 20, .seed = 3, .channels = 5});
  EXPECT_EQ(five.image(), (Shape{32, 32, 5}));
  for (int64_t i = 0; i < 20; ++i) {
    const std::vector<uint8_t> few = image(three, i), many = image(five, i);
    double difference = 0;
    for (size_t p = 0; p < 32 * 32; ++p) {
      for (size_t c = 0; c < 3; ++c) ASSERT_EQ(many[5 * p + c], few[3 * p + c]);
      difference += std::abs(many[5 * p + 3] - many[5 * p]) / 1024.0;
    }
    EXPECT_GT(difference, 2);
    EXPECT_LT(difference, 16);  // noise has a standard deviation of 10
  }
}

// The colours of shape and background are at least 120 apart in this channel, less the gradient.
TEST(Synthetic, ShapesStandOutInOneChannel) {
  const SyntheticDataset images({.size = 100, .classes = 1, .channels = 1});
  ASSERT_EQ(images.image(), (Shape{32, 32, 1}));
  for (int64_t i = 0; i < 100; ++i) {
    std::vector<uint8_t> pixels = image(images, i);
    std::sort(pixels.begin(), pixels.end());
    EXPECT_GT(pixels[pixels.size() * 95 / 100] - pixels[pixels.size() * 5 / 100], 80) << i;
  }
}

TEST(Synthetic, RejectsSettingsOutOfRange) {
  EXPECT_THROW(SyntheticDataset({.size = 1, .channels = 0}), Error);
  EXPECT_THROW(SyntheticDataset({.size = 0}), Error);
  EXPECT_THROW(SyntheticDataset({.size = 1, .side = 4}), Error);
  EXPECT_THROW(SyntheticDataset({.size = 1, .classes = 11}), Error);
}

double accuracy(const LinearClassifier& classifier, const Dataset& dataset) {
  int64_t right = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) right += classifier.guess(image(dataset, i)) == dataset.label(i);
  return static_cast<double>(right) / static_cast<double>(dataset.size());
}

LinearClassifier trained(const Dataset& images, int epochs) {
  LinearClassifier classifier(images.image().elements());
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (int64_t i = 0; i < images.size(); ++i) classifier.learn(image(images, i), images.label(i), 1e-3f);
  return classifier;
}

TEST(Synthetic, IsNotSolvedByALinearClassifier) {
  const SyntheticDataset train({.size = 2000}), test({.size = 1000, .split = Split::kTest});
  EXPECT_LT(accuracy(trained(train, 5), test), 0.25);
}

TEST(Synthetic, LinearClassifierOfTheseTestsDoesLearn) {
  // Too many repetitions lead to overfitting, so the test above is meaningful.
  const SyntheticDataset few({.size = 50});
  EXPECT_GT(accuracy(trained(few, 40), few), 0.9);
}

// The corners, which few shapes reach. Slopes of up to 30 from centre to edge are uniform in -30 to 30, and the grain
// has a standard deviation of 10. Clipping at 0 and 255 reduces both a little.
TEST(Synthetic, BackgroundsSlopeAndAreGrainy) {
  constexpr int64_t kImages = 500, kSide = 32;
  const SyntheticDataset images({.size = kImages, .side = kSide});
  std::vector<uint8_t> pixels(kSide * kSide * 3);
  double across = 0, down = 0, grain = 0;
  for (int64_t i = 0; i < kImages; ++i) {
    images.read(i, View{}, pixels.data());
    const auto at = [&](int64_t y, int64_t x, int64_t c) {
      return static_cast<double>(pixels[static_cast<size_t>((y * kSide + x) * 3 + c)]);
    };
    const auto square = [](double value) { return value * value; };
    for (int64_t c = 0; c < 3; ++c) {
      across += square(at(0, kSide - 1, c) - at(0, 0, c));
      down += square(at(kSide - 1, 0, c) - at(0, 0, c));
      grain += square(at(0, 1, c) - at(0, 0, c));
    }
  }
  const auto deviation = [](double squares) { return std::sqrt(squares / (3 * kImages)); };
  // 60 / sqrt(3) of the slope and sqrt(2) * 10 of the grain
  const double expected = std::sqrt(3600.0 / 3 * 31 * 31 / (32 * 32) + 200);
  EXPECT_NEAR(deviation(across), expected, 0.12 * expected);
  EXPECT_NEAR(deviation(down), expected, 0.12 * expected);
  EXPECT_NEAR(deviation(grain), std::sqrt(200), 0.12 * std::sqrt(200));
}

TEST(SyntheticPhotos, AreAFunctionOfSeedSplitAndIndexAndDifferInSize) {
  const SyntheticPhotos photos{.seed = 3}, same{.seed = 3}, other{.seed = 4}, test{.seed = 3, .split = Split::kTest};
  std::set<std::pair<int64_t, int64_t>> sizes;
  int upright = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const Photo photo = photos.draw(i);
    EXPECT_EQ(photo.pixels, same.draw(i).pixels);
    EXPECT_NE(photo.pixels, other.draw(i).pixels);
    EXPECT_NE(photo.pixels, test.draw(i).pixels);
    EXPECT_GE(std::min(photo.height, photo.width), 128);
    EXPECT_LE(std::max(photo.height, photo.width), 400);
    EXPECT_EQ(static_cast<int64_t>(photo.pixels.size()), photo.height * photo.width * 3);
    sizes.insert({photo.height, photo.width});
    upright += photo.height > photo.width;
  }
  EXPECT_GT(sizes.size(), 35u);
  EXPECT_GT(upright, 8);
  EXPECT_LT(upright, 32);
}

TEST(SyntheticPhotos, OfMoreThanTenClassesShowTheColourOfTheirName) {
  const SyntheticPhotos few{}, many{.classes = 100};
  EXPECT_THAT(few.class_names(), testing::ElementsAreArray(SyntheticDataset({.size = 1}).class_names()));
  const std::vector<std::string> names = many.class_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 100u);
  EXPECT_EQ(names[2], "red_square");
  EXPECT_EQ(names[52], "blue_square");
  // A square has a radius of at least 0.15 of the short side, and 0.9 of it are filled: a twentieth of the image.
  const auto share_of = [&](int64_t index, size_t colour) {
    const Photo photo = many.draw(index);
    int64_t found = 0;
    for (size_t i = 0; i < photo.pixels.size(); i += 3)
      found += photo.pixels[i + colour] > 150 && photo.pixels[i + 1] < 110 && photo.pixels[i + 2 - colour] < 110;
    return static_cast<double>(found) / static_cast<double>(photo.height * photo.width);
  };
  for (int64_t i = 0; i < 500; i += 100) {
    EXPECT_GT(share_of(i + 2, 0), 0.04) << "red";
    EXPECT_GT(share_of(i + 52, 2), 0.04) << "blue";
  }
}

}  // namespace
}  // namespace owt::synthetic_test

#include "data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "data/memory_dataset.h"
#include "src/core/philox.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::augment_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using From = AugmentSettings::From;

const Shape kSmall{2, 3, 1};  // rows 1 2 3 and 4 5 6
const std::vector<uint8_t> kPixels{1, 2, 3, 4, 5, 6};

std::vector<float> eval(const Augmenter& augmenter, const std::vector<uint8_t>& pixels) {
  std::vector<float> out(static_cast<size_t>(augmenter.out_shape().elements()), -1.0f);
  augmenter.make({}, 0, pixels.data(), out.data());
  return out;
}

std::vector<float> train(const Augmenter& augmenter, const std::vector<uint8_t>& pixels, int64_t sample,
                         int64_t epoch = 0, uint64_t seed = 1) {
  std::vector<float> out(static_cast<size_t>(augmenter.out_shape().elements()), -1.0f);
  augmenter.make({.training = true, .seed = seed, .epoch = epoch}, sample, pixels.data(), out.data());
  return out;
}

AugmentSettings parse(const std::string& table, const Shape& image = {32, 32, 3}) {
  Config config = Config::text("[data]\naugment = " + table + "\n", "made.toml");
  return AugmentSettings::from(config.table("data").table("augment"), image);
}

std::string error_of(const std::string& table) {
  return message_of([&] { parse(table); });
}

TEST(Augment, WithoutSettingsGivesThePixelsAsTheyAre) {
  const Augmenter augmenter({}, kSmall);
  EXPECT_EQ(augmenter.out_shape(), kSmall);
  EXPECT_THAT(eval(augmenter, kPixels), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(train(augmenter, kPixels, 0), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Augment, EvaluatesTheCentre) {
  const std::vector<uint8_t> rows{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};  // 4 x 4
  EXPECT_THAT(eval(Augmenter({.crop = 2}, {4, 4, 1}), rows), ElementsAre(6, 7, 10, 11));
  // One place too many: rounded up and left.
  EXPECT_THAT(eval(Augmenter({.crop = 3}, {4, 4, 1}), rows), ElementsAre(1, 2, 3, 5, 6, 7, 9, 10, 11));
}

TEST(Augment, EvaluatesTheWholeImageWhereTheCropHasItsSize) {
  EXPECT_THAT(eval(Augmenter({.pad = 2}, kSmall), kPixels), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Augment, PadsWithZerosAfterTheMean) {
  const Augmenter augmenter({.crop = 4, .pad = 1, .mean = From::kValues, .mean_values = {10}}, {2, 2, 1});
  EXPECT_THAT(eval(augmenter, {1, 2, 3, 4}), ElementsAre(0, 0, 0, 0,    //
                                                         0, -9, -8, 0,  //
                                                         0, -7, -6, 0,  //
                                                         0, 0, 0, 0));
}

TEST(Augment, ReflectsTheImageInItsPaddingWithoutRepeatingItsEdge) {
  // 1 2 3 / 4 5 6 / 7 8 9 with a border of two, as torch.nn.functional.pad(mode="reflect") gives it.
  const std::vector<uint8_t> pixels{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const int padded[7][7] = {{9, 8, 7, 8, 9, 8, 7}, {6, 5, 4, 5, 6, 5, 4}, {3, 2, 1, 2, 3, 2, 1}, {6, 5, 4, 5, 6, 5, 4},
                            {9, 8, 7, 8, 9, 8, 7}, {6, 5, 4, 5, 6, 5, 4}, {3, 2, 1, 2, 3, 2, 1}};
  const Augmenter augmenter({.crop = 3, .pad = 2, .reflect = true, .mirror = true}, {3, 3, 1});
  EXPECT_THAT(eval(augmenter, pixels), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  std::set<std::vector<float>> seen, wanted;
  for (int y = 0; y < 5; ++y)
    for (int x = 0; x < 5; ++x)
      for (const bool mirrored : {false, true}) {
        std::vector<float> crop;
        for (int row = 0; row < 3; ++row)
          for (int column = 0; column < 3; ++column)
            crop.push_back(static_cast<float>(padded[y + row][x + (mirrored ? 2 - column : column)]));
        wanted.insert(crop);
      }
  for (int64_t sample = 0; sample < 2000; ++sample) seen.insert(train(augmenter, pixels, sample));
  EXPECT_EQ(seen, wanted);
}

TEST(Augment, ReflectsPixelsOfSeveralChannels) {
  const Augmenter augmenter({.crop = 3, .pad = 1, .reflect = true, .mean = From::kValues, .mean_values = {1, 10}},
                            {3, 3, 2});
  for (int64_t sample = 0; sample < 100; ++sample) {
    const std::vector<float> out =
        train(augmenter, {1, 10, 2, 20, 3, 30, 1, 10, 2, 20, 3, 30, 1, 10, 2, 20, 3, 30}, sample);
    for (size_t i = 0; i < out.size(); i += 2) ASSERT_EQ(out[i + 1], 10 * out[i]);
  }
}

TEST(Augment, TakesEveryCropAndItsMirrorImageInTraining) {
  // One row of zero padding around 1 2: the crops of side 1 would be 0, 1, 2; of side 2 they differ when
  // mirrored.
  const Augmenter augmenter({.crop = 2, .pad = 1, .mirror = true}, {2, 2, 1});
  std::set<std::vector<float>> seen, wanted;
  const float padded[4][4] = {{0, 0, 0, 0}, {0, 1, 2, 0}, {0, 3, 4, 0}, {0, 0, 0, 0}};
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < 3; ++x) {
      const float a = padded[y][x], b = padded[y][x + 1], c = padded[y + 1][x], d = padded[y + 1][x + 1];
      wanted.insert({a, b, c, d});
      wanted.insert({b, a, d, c});
    }
  for (int64_t sample = 0; sample < 1000; ++sample) seen.insert(train(augmenter, {1, 2, 3, 4}, sample));
  EXPECT_EQ(seen, wanted);
}

TEST(Augment, MirrorsPixelsNotChannelsHalfOfTheTime) {
  const Augmenter augmenter({.mirror = true}, {1, 3, 2});
  const std::vector<uint8_t> pixels{1, 2, 3, 4, 5, 6};
  int mirrored = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const auto out = train(augmenter, pixels, sample);
    ASSERT_THAT(out, AnyOf(ElementsAre(1, 2, 3, 4, 5, 6), ElementsAre(5, 6, 3, 4, 1, 2)));
    mirrored += out[0] == 5;
  }
  EXPECT_NEAR(mirrored, 500, 80);  // five standard deviations
}

TEST(Augment, SubtractsTheMeanOfTheSourcePosition) {
  DatasetStatistics statistics;
  statistics.pixel_mean = {1, 2, 3, 4, 5, 6};
  const Augmenter whole({.mean = From::kPixel}, kSmall, statistics);
  EXPECT_THAT(eval(whole, {2, 4, 6, 8, 10, 12}), ElementsAre(1, 2, 3, 4, 5, 6));
  const Augmenter moved({.crop = 1, .mirror = true, .mean = From::kPixel}, kSmall, statistics);
  for (int64_t sample = 0; sample < 50; ++sample) EXPECT_THAT(train(moved, kPixels, sample), ElementsAre(0));
}

TEST(Augment, DividesByTheStdOfTheChannelAndScales) {
  const AugmentSettings settings{
      .scale = 3, .mean = From::kValues, .std = From::kValues, .mean_values = {1, 2}, .std_values = {2, 4}};
  // (5 - 1) * 3 / 2, (6 - 2) * 3 / 4 and so on
  EXPECT_THAT(eval(Augmenter(settings, {1, 2, 2}), {5, 6, 7, 10}), ElementsAre(6, 3, 9, 6));
}

TEST(Augment, TakesChannelStatisticsOfTheTrainingSet) {
  DatasetStatistics statistics;
  statistics.channel_mean = {1, 2};
  statistics.channel_std = {2, 4};
  const Augmenter augmenter({.mean = From::kChannel, .std = From::kChannel}, {1, 2, 2}, statistics);
  EXPECT_THAT(eval(augmenter, {5, 6, 7, 10}), ElementsAre(2, 1, 3, 2));
}

TEST(Augment, AddsOneColourOffsetPerChannelInTrainingOnly) {
  const Augmenter augmenter({.crop = 4, .pad = 1, .color = 2}, {2, 2, 2});
  const std::vector<uint8_t> pixels(8, 100);
  const auto in_eval = eval(augmenter, pixels);
  EXPECT_EQ(in_eval[10], 100);
  double sum = 0, squares = 0;
  constexpr int kImages = 2000;
  for (int64_t sample = 0; sample < kImages; ++sample) {
    const auto out = train(augmenter, pixels, sample);
    EXPECT_EQ(out[0], 0) << "padding stays zero";
    EXPECT_EQ(out[10], out[12]);
    EXPECT_NE(out[10], out[11]);
    const double offset = out[10] - 100;
    sum += offset, squares += offset * offset;
  }
  EXPECT_NEAR(sum / kImages, 0, 0.25);
  EXPECT_NEAR(std::sqrt(squares / kImages), 2, 0.2);
}

TEST(Augment, DependsOnSeedEpochAndSampleOnly) {
  const Augmenter augmenter({.crop = 8, .pad = 4, .mirror = true, .color = 1}, {16, 16, 3});
  std::vector<uint8_t> pixels(16 * 16 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 31 % 256);
  const auto first = train(augmenter, pixels, 5, 2, 9);
  train(augmenter, pixels, 6, 2, 9);
  EXPECT_EQ(train(augmenter, pixels, 5, 2, 9), first);
  EXPECT_NE(train(augmenter, pixels, 6, 2, 9), first);
  EXPECT_NE(train(augmenter, pixels, 5, 3, 9), first);
  EXPECT_NE(train(augmenter, pixels, 5, 2, 8), first);
}

TEST(Augment, ColoursVaryAlongTheEigenvectors) {
  DatasetStatistics statistics;
  statistics.eigenvalues = {5100, 510, 0};
  statistics.eigenvectors = {0.6, 0.8, 0, -0.8, 0.6, 0, 0, 0, 1};
  const AugmentSettings settings{.pca = 0.5, .std = From::kValues, .mean_values = {}, .std_values = {1, 2, 4}};
  const Augmenter augmenter(settings, {1, 2, 3}, statistics);
  const std::vector<uint8_t> pixels{10, 20, 40, 20, 40, 80};
  EXPECT_THAT(eval(augmenter, pixels), ElementsAre(10, 10, 10, 20, 20, 20));

  constexpr int kSamples = 4000;
  double first = 0, second = 0, both = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const auto values = train(augmenter, pixels, sample);
    const float red = values[0] - 10, green = (values[1] - 10) * 2;
    EXPECT_NEAR(values[3] - 20, red, 1e-4);
    EXPECT_FLOAT_EQ(values[2], 10);  // along the third there is no variance
    const double along = (0.6 * red + 0.8 * green) / 20, across = (-0.8 * red + 0.6 * green) / 2;
    first += along * along / kSamples;
    second += across * across / kSamples;
    both += along * across / kSamples;
  }
  EXPECT_NEAR(first, 0.25, 0.03);
  EXPECT_NEAR(second, 0.25, 0.03);
  EXPECT_NEAR(both, 0, 0.03);
}

TEST(Augment, MirroredRowsOfAllLengthsAreTheirPixelsBackwards) {
  for (const int64_t channels : {1, 3, 4})
    for (int64_t width = 1; width < 40; ++width) {
      const Shape image{1, width, channels};
      std::vector<uint8_t> pixels(static_cast<size_t>(image.elements()));
      for (size_t e = 0; e < pixels.size(); ++e) pixels[e] = static_cast<uint8_t>(e);
      const Augmenter augmenter({.mirror = true}, image);
      std::vector<float> out(pixels.size());
      augmenter.make({.number = 5}, 0, pixels.data(), out.data());
      for (int64_t x = 0; x < width; ++x)
        for (int64_t c = 0; c < channels; ++c)
          ASSERT_EQ(out[static_cast<size_t>(x * channels + c)],
                    pixels[static_cast<size_t>((width - 1 - x) * channels + c)])
              << width << " pixels of " << channels;
    }
}

// An exported network applies them to the plain pixels of the centre.
TEST(Augment, TellsWhatTheCentreViewDoesToItsPixels) {
  const Shape image{5, 7, 2};
  DatasetStatistics statistics;
  statistics.channel_mean = {3, 5};
  statistics.channel_std = {2, 4};
  std::vector<uint8_t> pixels;
  for (int i = 0; i < image.elements(); ++i) {
    statistics.pixel_mean.push_back(0.25 * i);
    pixels.push_back(static_cast<uint8_t>(i * 37 % 251));
  }
  for (const auto& [crop, pad] : {std::pair<int64_t, int64_t>{3, 0}, {3, 1}, {9, 2}, {0, 0}})
    for (const From mean : {From::kNone, From::kPixel, From::kChannel, From::kValues})
      for (const From std : {From::kNone, From::kChannel, From::kValues}) {
        const Augmenter augmenter({.crop = crop,
                                   .pad = pad,
                                   .scale = 0.5,
                                   .mean = mean,
                                   .std = std,
                                   .mean_values = {1, 2},
                                   .std_values = {8, 16}},
                                  image, statistics);
        const std::vector<float> plain = eval(Augmenter({.crop = crop, .pad = pad}, image), pixels);
        const auto [means, factors] = augmenter.at_centre();
        std::vector<float> expected;
        for (size_t e = 0; e < plain.size(); ++e) expected.push_back((plain[e] - means[e]) * factors[e]);
        EXPECT_EQ(eval(augmenter, pixels), expected)
            << "crop " << crop << ", pad " << pad << ", mean " << int(mean) << ", std " << int(std);
      }
}

// One value by the settings, pixel by pixel: source places first, then mean, factor and colour.
double plain_value(const AugmentSettings& of, const Shape& image, const DatasetStatistics& known, const View& view,
                   int64_t sample, const std::vector<uint8_t>& pixels, int64_t y, int64_t x, int64_t c) {
  const int64_t out_height = of.crop ? of.crop : image[0], out_width = of.crop ? of.crop : image[1];
  const int64_t down = image[0] + 2 * of.pad - out_height, across = image[1] + 2 * of.pad - out_width;
  int64_t top = down / 2, left = across / 2;
  bool mirrored = view.mirrored();
  if (view.training) {
    const auto bits = Philox(view.seed, RandomStream::kAugment, static_cast<uint64_t>(view.epoch))
                          .block(static_cast<uint64_t>(sample));
    top = static_cast<int64_t>(std::floor(std::ldexp(bits[0], -32) * static_cast<double>(down + 1)));
    left = static_cast<int64_t>(std::floor(std::ldexp(bits[1], -32) * static_cast<double>(across + 1)));
    mirrored = of.mirror && bits[2] % 2 == 1;
  } else if (view.number >= 12) {
    top += view.number < 14 ? -1 : 1;
    left += view.number < 14 ? -1 : 1;
  } else if (view.place() > 0) {
    top = view.place() <= 2 ? 0 : down;
    left = view.place() % 2 == 1 ? 0 : across;
  }
  const int64_t row = y + top - of.pad, column = (mirrored ? out_width - 1 - x : x) + left - of.pad;
  if (row < 0 || row >= image[0] || column < 0 || column >= image[1]) return 0;
  const auto place = static_cast<size_t>((row * image[1] + column) * image[2] + c), channel = static_cast<size_t>(c);
  const double mean = of.mean == From::kPixel     ? known.pixel_mean[place]
                      : of.mean == From::kChannel ? known.channel_mean[channel]
                      : of.mean == From::kValues  ? of.mean_values[channel]
                                                  : 0;
  const double std = of.std == From::kChannel  ? known.channel_std[channel]
                     : of.std == From::kValues ? of.std_values[channel]
                                               : 1;
  double offset = 0;
  const Philox colours(view.seed, RandomStream::kAugment, static_cast<uint64_t>(view.epoch), "color");
  const auto normal = [&](size_t i) {
    return static_cast<double>(colours.normal(static_cast<uint64_t>(sample * image[2]) + i));
  };
  if (view.training && of.color > 0) offset = of.color * normal(channel);
  for (size_t i = 0; view.training && of.pca > 0 && i < 3; ++i)
    offset += of.scale / std * of.pca * known.eigenvalues[i] / 255 * known.eigenvectors[i * 3 + channel] * normal(i);
  return (pixels[place] - mean) * of.scale / std + offset;
}

TEST(Augment, IsTheFormulaOfItsSettingsForEveryPixel) {
  DatasetStatistics known;
  known.channel_mean = {90, 120, 101};
  known.channel_std = {50, 60, 71};
  known.eigenvalues = {900, 40, 3};
  known.eigenvectors = {0.6, 0.64, 0.48, 0.8, -0.48, -0.36, 0, 0.6, -0.8};
  const AugmentSettings cases[] = {
      {},
      {.crop = 4, .mirror = true, .scale = 0.5, .mean = From::kPixel},
      {.crop = 5, .pad = 3, .mirror = true, .color = 2, .mean = From::kPixel, .std = From::kChannel},
      {.pad = 2, .mirror = true, .color = 0.3, .scale = 2, .mean = From::kChannel, .std = From::kChannel},
      {.crop = 3, .pca = 0.2, .scale = 3, .mean = From::kChannel, .std = From::kChannel},
      {.crop = 7, .pad = 1, .mirror = true, .pca = 0.1, .std = From::kValues, .std_values = {2, 3, 5}},
      {.crop = 11, .pad = 4, .mirror = true, .mean = From::kValues, .mean_values = {1, 20, 30}},
  };
  for (const Shape& image : {Shape{5, 9, 3}, Shape{8, 5, 3}, Shape{5, 40, 3}}) {
    std::vector<uint8_t> pixels;
    known.pixel_mean.clear();
    for (int64_t i = 0; i < image.elements(); ++i) {
      pixels.push_back(static_cast<uint8_t>(i * 97 + 13));
      known.pixel_mean.push_back(100 + static_cast<double>(i % 31));
    }
    for (const AugmentSettings& settings : cases) {
      const Augmenter augmenter(settings, image, known);
      const Shape out = augmenter.out_shape();
      std::vector<View> views;
      for (int number = 0; number < kViewNumbers; ++number) views.push_back({.number = number});
      for (int64_t epoch = 0; epoch < 20; ++epoch) views.push_back({.training = true, .seed = 3, .epoch = epoch});
      for (const View& view : views)
        for (const int64_t sample : {0, 7}) {
          std::vector<float> found(static_cast<size_t>(out.elements()), -1000.0f);
          augmenter.make(view, sample, pixels.data(), found.data());
          size_t e = 0;
          for (int64_t y = 0; y < out[0]; ++y)
            for (int64_t x = 0; x < out[1]; ++x)
              for (int64_t c = 0; c < 3; ++c, ++e)
                ASSERT_NEAR(found[e], plain_value(settings, image, known, view, sample, pixels, y, x, c), 2e-3)
                    << "case " << &settings - cases << ", image " << image << ", view " << view.number << ", epoch "
                    << view.epoch << ", at " << y << ", " << x << ", " << c;
        }
    }
  }
}

std::vector<uint8_t> slope(const Shape& image) {
  std::vector<uint8_t> pixels(static_cast<size_t>(image.elements()));
  for (size_t e = 0; e < pixels.size(); ++e) pixels[e] = static_cast<uint8_t>(40 + e * 7 % 190);
  return pixels;
}

TEST(Augment, AlternatingMirrorsShowBothSidesOfEveryImageInTwoEpochs) {
  const Augmenter alternating({.mirror = true, .alternate = true}, {1, 3, 1}), random({.mirror = true}, {1, 3, 1});
  const std::vector<uint8_t> pixels{1, 2, 3};
  int mirrored = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const auto first = train(alternating, pixels, sample, 0);
    EXPECT_EQ(first, train(random, pixels, sample, 0));
    mirrored += first[0] == 3;
    for (int64_t epoch = 1; epoch < 6; ++epoch)
      EXPECT_EQ(train(alternating, pixels, sample, epoch)[0], epoch % 2 == 0 ? first[0] : 4 - first[0]);
  }
  EXPECT_NEAR(mirrored, 500, 60);
  EXPECT_THAT(eval(alternating, pixels), ElementsAre(1, 2, 3));
}

TEST(Augment, ErasesARectangleOfTheShareOfImagesThatIsAskedFor) {
  const Shape image{40, 30, 3};
  const auto pixels = slope(image);
  const AugmentSettings plain{.crop = 24, .pad = 2, .mirror = true, .mean = From::kValues, .mean_values = {1, 2, 3}};
  AugmentSettings erasing = plain;
  erasing.erase = 0.25;
  const Augmenter with(erasing, image), without(plain, image);
  int erased = 0;
  double area = 0, tall = 0;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    const auto found = train(with, pixels, sample), whole = train(without, pixels, sample);
    int64_t top = 24, left = 24, bottom = -1, right = -1, changed = 0;
    for (int64_t e = 0; e < std::ssize(found); e += 3) {
      const auto at = static_cast<size_t>(e);
      if (found[at] == whole[at]) continue;
      EXPECT_EQ(found[at], 0);
      EXPECT_EQ(found[at + 2], 0);
      const int64_t y = e / 72, x = e / 3 % 24;
      top = std::min(top, y), left = std::min(left, x), bottom = std::max(bottom, y), right = std::max(right, x);
      ++changed;
    }
    if (changed == 0) continue;
    ++erased;
    const double high = static_cast<double>(bottom - top + 1), wide = static_cast<double>(right - left + 1);
    EXPECT_LE(changed, high * wide);  // values that were zero before show no change
    area += high * wide / (24 * 24), tall += high > wide;
  }
  EXPECT_NEAR(erased, 500, 70);
  EXPECT_NEAR(area / erased, 0.175, 0.02);
  EXPECT_NEAR(tall / erased, 0.5, 0.1);
  EXPECT_EQ(eval(with, pixels), eval(without, pixels));
}

TEST(Augment, CutsASquareOutOfEveryImageAtAllPlacesAlike) {
  const Shape image{12, 9, 1};
  const std::vector<uint8_t> pixels(108, 7);
  const Augmenter with({.crop = 8, .cutout = 3}, image);
  std::map<std::pair<int64_t, int64_t>, int> places;
  for (int64_t sample = 0; sample < 3600; ++sample) {
    const auto found = train(with, pixels, sample);
    const int64_t first = std::find(found.begin(), found.end(), 0.0f) - found.begin();
    const int64_t top = first / 8, left = first % 8;
    ++places[{top, left}];
    for (int64_t e = 0; e < 64; ++e) {
      const bool cut = e / 8 >= top && e / 8 < top + 3 && e % 8 >= left && e % 8 < left + 3;
      ASSERT_EQ(found[static_cast<size_t>(e)], cut ? 0 : 7) << "sample " << sample << ", value " << e;
    }
  }
  EXPECT_EQ(places.size(), 36);
  for (const auto& [place, times] : places) EXPECT_NEAR(times, 100, 50) << place.first << ", " << place.second;
  EXPECT_THAT(eval(with, pixels), Each(7));
}

TEST(Augment, PatchesHaveTheAreasAndProportionsOfRandomErasing) {
  const Philox random(5, RandomStream::kTest);
  for (uint64_t i = 0; i < 3000; ++i) {
    const auto bits = random.block(i);
    const Patch patch = random_patch(224, 192, bits[0], bits[1], bits[2], bits[3]);
    const double area = (0.02 + 0.31 * bits[0] * 0x1p-32) * 224 * 192;
    const double aspect = std::exp(std::log(0.3) + std::log(3.3 / 0.3) * bits[1] * 0x1p-32);
    const double high = std::round(std::sqrt(area * aspect)), wide = std::round(std::sqrt(area / aspect));
    const bool fits = high < 224 && wide < 192;
    ASSERT_EQ(patch.height, fits ? high : 0);
    ASSERT_EQ(patch.width, fits ? wide : 0);
    ASSERT_TRUE(patch.top >= 0 && patch.left >= 0);
    ASSERT_TRUE(patch.top + patch.height <= 224 && patch.left + patch.width <= 192);
  }
}

// Crops and mirrors are of the image that the operations leave.
TEST(Augment, ChangesBytesBeforeAllElse) {
  const Shape image{20, 20, 3};
  const auto pixels = slope(image);
  AugmentSettings settings{.crop = 12, .pad = 1, .mirror = true, .std = From::kValues, .std_values = {2, 3, 4}};
  const Augmenter plain(settings, image);
  settings.jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
  const Augmenter jitters(settings, image);
  settings.trivial = true;
  const Augmenter both(settings, image);
  int changed = 0, changed_again = 0;
  for (int64_t sample = 0; sample < 200; ++sample) {
    const auto once = train(jitters, pixels, sample);
    changed += once != train(plain, pixels, sample);
    changed_again += once != train(both, pixels, sample);
    EXPECT_EQ(train(both, pixels, sample), train(both, pixels, sample));
    EXPECT_NE(train(jitters, pixels, sample, 1), once);
  }
  EXPECT_EQ(changed, 200);
  EXPECT_GT(changed_again, 140);  // one operation of 14 changes nothing, and some change little
  EXPECT_LT(changed_again, 199);
  EXPECT_EQ(eval(both, pixels), eval(plain, pixels));

  // Brightness only, with a known amount: only the block of the sample, and no other operation.
  AugmentSettings brighter{.mirror = true};
  brighter.jitter.brightness = 0.5;
  for (int64_t sample = 0; sample < 50; ++sample) {
    const auto bits = Philox(1, RandomStream::kAugment, 0, "jitter").block(static_cast<uint64_t>(2 * sample))[0];
    const double factor = 0.5 + bits * 0x1p-32;
    const auto found = train(Augmenter(brighter, image), pixels, sample);
    const auto whole = train(Augmenter({.mirror = true}, image), pixels, sample);
    for (size_t e = 0; e < found.size(); ++e)
      ASSERT_NEAR(found[e], std::min(255.0, factor * static_cast<double>(whole[e])), 0.51);
  }
}

TEST(Augment, SaturationAndHueChangeNothingInOneChannel) {
  const Shape image{20, 20, 1};
  const auto pixels = slope(image);
  AugmentSettings settings{.crop = 12, .pad = 1, .mirror = true};
  const Augmenter plain(settings, image);
  settings.jitter = {.saturation = 0.9, .hue = 0.5};
  const Augmenter turned(settings, image);
  settings.jitter.brightness = 0.4;
  const Augmenter brighter(settings, image);
  for (int64_t sample = 0; sample < 20; ++sample) {
    EXPECT_EQ(train(turned, pixels, sample), train(plain, pixels, sample));
    EXPECT_NE(train(brighter, pixels, sample), train(plain, pixels, sample));
  }
}

TEST(AugmentSettings, ReadsEveryKey) {
  const auto settings = parse(
      "{ crop = 28, pad = 4, mirror = true, color = 0.5, scale = 0.25, mean = [1, 2, 3], std = [4.0, 5.0, "
      "6.0] }");
  EXPECT_EQ(settings.crop, 28);
  EXPECT_EQ(settings.pad, 4);
  EXPECT_TRUE(settings.mirror);
  EXPECT_EQ(settings.color, 0.5);
  EXPECT_EQ(settings.scale, 0.25);
  EXPECT_EQ(settings.mean, From::kValues);
  EXPECT_THAT(settings.mean_values, ElementsAre(1, 2, 3));
  EXPECT_THAT(settings.std_values, ElementsAre(4, 5, 6));
  EXPECT_FALSE(settings.needs_statistics());
}

TEST(AugmentSettings, ReadsChangesOfBytesAndErasing) {
  const auto settings = parse(
      "{ jitter = { brightness = 0.4, contrast = 0.3, saturation = 0.2, hue = 0.1 }, policy = 'trivial_wide', erase = "
      "0.25, mirror = 'alternating' }");
  EXPECT_EQ(settings.jitter.brightness, 0.4);
  EXPECT_EQ(settings.jitter.contrast, 0.3);
  EXPECT_EQ(settings.jitter.saturation, 0.2);
  EXPECT_EQ(settings.jitter.hue, 0.1);
  EXPECT_TRUE(settings.trivial);
  EXPECT_EQ(settings.erase, 0.25);
  EXPECT_EQ(parse("{ cutout = 12 }").cutout, 12);
  EXPECT_TRUE(settings.mirror && settings.alternate);
  EXPECT_FALSE(parse("{ mirror = true }").alternate);
  EXPECT_FALSE(parse("{}").jitter.any() || parse("{}").trivial);
}

TEST(AugmentSettings, ReadsWords) {
  EXPECT_EQ(parse("{ mean = 'pixel' }").mean, From::kPixel);
  EXPECT_EQ(parse("{ mean = 'none' }").mean, From::kNone);
  const auto both = parse("{ mean = 'channel', std = 'channel' }");
  EXPECT_EQ(both.mean, From::kChannel);
  EXPECT_EQ(both.std, From::kChannel);
  EXPECT_TRUE(both.needs_statistics());
  EXPECT_FALSE(parse("{}").needs_statistics());
}

TEST(AugmentSettings, RejectsWhatDoesNotFitNamingFileAndLine) {
  EXPECT_THAT(error_of("{ crop = 41, pad = 4 }"),
              AllOf(HasSubstr("made.toml:2"), HasSubstr("'crop' is 41, wanted at most 40"), HasSubstr("32 x 32")));
  EXPECT_THAT(error_of("{ pad = -1 }"), HasSubstr("'pad' is -1"));
  EXPECT_THAT(error_of("{ mean = [1, 2] }"), HasSubstr("'mean' has 2 values, wanted one for each of the 3 channels"));
  EXPECT_THAT(error_of("{ mean = 'pixels' }"), HasSubstr("did you mean 'pixel'?"));
  EXPECT_THAT(error_of("{ std = 'pixel' }"), HasSubstr("wanted one of channel, none"));
  EXPECT_THAT(error_of("{ std = [1, 0, 1] }"), HasSubstr("'std' holds 0"));
  EXPECT_THAT(error_of("{ scale = 0 }"), HasSubstr("'scale' is 0"));
  EXPECT_THAT(error_of("{ mirror = 'alternate' }"), HasSubstr("did you mean 'alternating'?"));
  EXPECT_THAT(error_of("{ policy = 'trivial' }"), HasSubstr("wanted one of none, trivial_wide"));
  EXPECT_THAT(error_of("{ erase = 1.5 }"), HasSubstr("'erase' is 1.5"));
  EXPECT_THAT(error_of("{ crop = 24, cutout = 25 }"), HasSubstr("'cutout' is 25, wanted at most 24"));
  EXPECT_THAT(error_of("{ erase = 0.5, cutout = 8 }"), HasSubstr("give one of them"));
  EXPECT_THAT(error_of("{ jitter = { hue = 0.6 } }"), HasSubstr("'hue' is 0.6"));
  EXPECT_THAT(error_of("{ jitter = { brightness = -1 } }"), HasSubstr("'brightness' is -1"));
  EXPECT_THAT(error_of("{ jitter = { color = 1 } }"),
              HasSubstr("keys of jitter: brightness, contrast, hue, saturation"));
  EXPECT_THAT(error_of("{ jitter = 0.4 }"), HasSubstr("'jitter'"));
  EXPECT_THAT(error_of("{ miror = true }"), HasSubstr("did you mean 'mirror'?"));
}

TEST(AugmentSettings, RefuseWhatReflectionsCannotFill) {
  EXPECT_TRUE(parse("{ pad = 4, pad_mode = 'reflect' }").reflect);
  EXPECT_FALSE(parse("{ pad = 4 }").reflect);
  EXPECT_THAT(error_of("{ pad = 32, pad_mode = 'reflect' }"), HasSubstr("'pad' is 32, wanted less than the 32 pixels"));
  EXPECT_THAT(error_of("{ crop = 33, pad = 4, pad_mode = 'reflect' }"), HasSubstr("use a smaller crop, or \"zeros\""));
  EXPECT_THAT(error_of("{ pad = 4, pad_mode = 'reflect', mean = 'pixel' }"), HasSubstr("use mean = \"channel\""));
  EXPECT_THAT(error_of("{ pad = 4, pad_mode = 'edge' }"), HasSubstr("'pad_mode'"));
}

TEST(Statistics, AreThoseOfAllPixels) {
  // Two images of 1 x 2 x 2: channel 0 holds 0 4 8 4, channel 1 holds 1 1 1 1.
  const MemoryDataset images({1, 2, 2}, 2, {0, 1, 4, 1, 8, 1, 4, 1}, {0, 1});
  const auto statistics = compute_statistics(images);
  EXPECT_THAT(statistics.pixel_mean, ElementsAre(4, 1, 4, 1));
  EXPECT_THAT(statistics.channel_mean, ElementsAre(4, 1));
  EXPECT_THAT(statistics.channel_std, ElementsAre(std::sqrt(8.0), 0));
}

TEST(Statistics, DoNotDependOnTheNumberOfThreads) {
  std::vector<uint8_t> pixels(2000 * 4);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i % 251);
  const MemoryDataset images({2, 2, 1}, 1, pixels, std::vector<uint8_t>(2000));
  const int before = team_size();
  set_team_size(1);
  const auto one = compute_statistics(images);
  set_team_size(4);
  const auto four = compute_statistics(images);
  set_team_size(before);
  EXPECT_EQ(one.pixel_mean, four.pixel_mean);
  EXPECT_EQ(one.channel_std, four.channel_std);
}

TEST(Statistics, HoldSquaresOfMoreWhiteImagesThanFitInto32Bits) {
  std::vector<uint8_t> pixels(80000);
  std::fill_n(pixels.begin(), 70000, 255);
  const MemoryDataset images({1, 1, 1}, 1, pixels, std::vector<uint8_t>(pixels.size()));
  const int before = team_size();
  set_team_size(1);  // so that one thread sums them all
  const auto statistics = compute_statistics(images);
  set_team_size(before);
  EXPECT_DOUBLE_EQ(statistics.channel_mean.at(0), 255.0 * 7 / 8);
  EXPECT_DOUBLE_EQ(statistics.channel_std.at(0), 255 * std::sqrt(7.0) / 8);
}

TEST(Statistics, RejectAChannelThatNeverChangesAsStd) {
  const MemoryDataset images({1, 1, 1}, 1, {7, 7}, {0, 0});
  EXPECT_THROW(Augmenter({.std = From::kChannel}, {1, 1, 1}, compute_statistics(images)), Error);
}

TEST(Statistics, RejectAnEmptyDataSet) { EXPECT_THROW(compute_statistics(MemoryDataset({1, 1, 1}, 1, {}, {})), Error); }

}  // namespace
}  // namespace owt::augment_test

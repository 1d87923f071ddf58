#include "data/patch_whitening.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/synthetic.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::patch_whitening_test {
namespace {

constexpr int64_t kSide = 12;

AugmentSettings settings() {
  AugmentSettings augment;
  augment.scale = 1.0 / 64;
  augment.mirror = true;  // has no effect on the centre view
  return augment;
}

// The outputs of the filters for every patch of the first images.
std::vector<std::vector<double>> outputs(const Dataset& dataset, const std::vector<float>& filters,
                                         const PatchWhitening& of) {
  const Augmenter augmenter(settings(), dataset.image());
  const int64_t values = of.height * of.width * 3;
  std::vector<std::vector<double>> all;
  std::vector<uint8_t> pixels(static_cast<size_t>(dataset.image().elements()));
  std::vector<float> image(pixels.size());
  for (int64_t i = 0; i < of.images; ++i) {
    dataset.read(i, View{}, pixels.data());
    augmenter.make(View{}, i, pixels.data(), image.data());
    for (int64_t y = 0; y + of.height <= kSide; ++y)
      for (int64_t x = 0; x + of.width <= kSide; ++x) {
        std::vector<double>& out = all.emplace_back(static_cast<size_t>(values), 0.0);
        for (int64_t f = 0; f < values; ++f)
          for (int64_t v = 0; v < values; ++v) {
            const int64_t r = v / (of.width * 3), rest = v % (of.width * 3);
            out[static_cast<size_t>(f)] += static_cast<double>(filters[static_cast<size_t>(f * values + v)]) *
                                           image[static_cast<size_t>(((y + r) * kSide + x) * 3 + rest)];
          }
      }
  }
  return all;
}

TEST(PatchWhitening, OutputsAreUncorrelatedAndOfVarianceOneButForEps) {
  const SyntheticDataset dataset({.size = 80, .side = kSide, .seed = 3});
  const PatchWhitening of{.height = 2, .width = 3, .images = 70, .eps = 1e-6};
  const std::vector<float> filters = whitening_filters(dataset, Augmenter(settings(), dataset.image()), of);
  const size_t n = 2 * 3 * 3;
  ASSERT_EQ(filters.size(), n * n);
  const auto all = outputs(dataset, filters, of);
  const auto patches = static_cast<double>(all.size());
  std::vector<double> mean(n, 0.0);
  for (const auto& out : all)
    for (size_t i = 0; i < n; ++i) mean[i] += out[i] / patches;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      double covariance = 0;
      for (const auto& out : all) covariance += (out[i] - mean[i]) * (out[j] - mean[j]) / patches;
      EXPECT_NEAR(covariance, i == j ? 1 : 0, 1e-2) << i << " " << j;
    }
}

TEST(PatchWhitening, EpsHoldsBackWhatVariesLittle) {
  const SyntheticDataset dataset({.size = 20, .side = kSide, .seed = 3});
  const Augmenter augmenter(settings(), dataset.image());
  const auto lengths = [&](double eps) {
    const std::vector<float> filters =
        whitening_filters(dataset, augmenter, {.height = 1, .width = 2, .images = 20, .eps = eps});
    std::vector<double> squares(6, 0.0);
    for (size_t i = 0; i < filters.size(); ++i) squares[i / 6] += static_cast<double>(filters[i]) * filters[i];
    return squares;
  };
  // Squared lengths are 1 / (lambda + eps).
  const std::vector<double> bare = lengths(0), held = lengths(0.5);
  for (size_t i = 0; i < bare.size(); ++i) EXPECT_NEAR(1 / held[i], 1 / bare[i] + 0.5, 1e-4 * (1 + 1 / bare[i]));
  EXPECT_TRUE(std::is_sorted(bare.begin(), bare.end()));
}

TEST(PatchWhitening, IsTheSameForEveryNumberOfThreads) {
  const SyntheticDataset dataset({.size = 200, .side = kSide, .seed = 3});
  const Augmenter augmenter(settings(), dataset.image());
  const PatchWhitening of{.height = 2, .width = 2, .images = 1000, .eps = 1e-4};  // all 200
  const int before = team_size();
  set_team_size(1);
  const std::vector<float> one = whitening_filters(dataset, augmenter, of);
  set_team_size(3);
  EXPECT_EQ(whitening_filters(dataset, augmenter, of), one);
  set_team_size(before);
}

TEST(PatchWhitening, SaysWhichPatchesThereAreNone) {
  const SyntheticDataset dataset({.size = 2, .side = kSide, .seed = 3});
  const Augmenter augmenter(settings(), dataset.image());
  const auto error = [&](int64_t height, int64_t width) {
    return message_of([&] { whitening_filters(dataset, augmenter, {height, width, 2, 0}); });
  };
  EXPECT_EQ(error(13, 1), "there are no patches of 13x1 pixels in 2 images of 12x12x3");
  EXPECT_EQ(error(10, 10), "filters of 10x10 pixels are too large to whiten images; use at most 256 values");
}

}  // namespace
}  // namespace owt::patch_whitening_test

#include "data/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/core/bf16.h"
#include "tests/data/batches.h"

namespace owt::mix_test {
namespace {

const Shape kImage{12, 10, 3};

View view(int64_t epoch = 0) { return {.training = true, .seed = 3, .epoch = epoch}; }

double moment(const MixSettings& settings, int power) {
  constexpr int kSamples = 20000;
  double sum = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample)
    sum += std::pow(static_cast<double>(draw_mix(settings, kImage, view(), sample).own()), power) / kSamples;
  return sum;
}

TEST(Mix, SharesAreOfTheBetaDistribution) {
  for (const double alpha : {0.05, 0.2, 1.0, 4.0}) {
    const double variance = 1 / (4 * (2 * alpha + 1));  // variance of Beta(alpha, alpha)
    EXPECT_NEAR(moment({.mixup = alpha}, 1), 0.5, 0.015) << alpha;
    EXPECT_NEAR(moment({.mixup = alpha}, 2), 0.25 + variance, 0.015) << alpha;
    // E x^4 = product over r = 0 ... 3 of (alpha + r) / (2 alpha + r)
    const double fourth =
        0.5 * (alpha + 1) / (2 * alpha + 1) * 0.5 * (alpha + 2) / (alpha + 1) * (alpha + 3) / (2 * alpha + 3);
    EXPECT_NEAR(moment({.mixup = alpha}, 4), fourth, 0.015) << alpha;
  }
}

TEST(Mix, DependsOnSeedEpochAndSampleOnly) {
  const MixSettings both{.mixup = 0.4, .cutmix = 1};
  int differ = 0;
  for (int64_t sample = 0; sample < 50; ++sample) {
    const PairMix mix = draw_mix(both, kImage, view(), sample);
    EXPECT_EQ(mix.share, draw_mix(both, kImage, view(), sample).share);
    differ += mix.share != draw_mix(both, kImage, view(1), sample).share;
  }
  EXPECT_GT(differ, 45);
  EXPECT_FALSE(draw_mix(both, kImage, {}, 3).mixes());
  EXPECT_FALSE(draw_mix({}, kImage, view(), 3).mixes());
}

TEST(Mix, OfBothKindsEachIsTakenAsOften) {
  int cuts = 0;
  for (int64_t sample = 0; sample < 4000; ++sample)
    cuts += draw_mix({.mixup = 0.4, .cutmix = 4}, {224, 224, 3}, view(), sample).cut.height > 0;
  EXPECT_NEAR(cuts, 2000, 130);
}

TEST(Mix, ARectangleHasTheAreaOfTheOthersShareAndLiesInTheImage) {
  double whole = 0;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    const PairMix mix = draw_mix({.cutmix = 1}, {100, 80, 3}, view(), sample);
    ASSERT_TRUE(mix.cut.top >= 0 && mix.cut.left >= 0 && mix.cut.top + mix.cut.height <= 100 &&
                mix.cut.left + mix.cut.width <= 80);
    const double area = mix.cut.height * mix.cut.width / 8000.0;
    ASSERT_NEAR(static_cast<double>(mix.other()), area, 1e-6);
    whole += area / 2000;
  }
  EXPECT_NEAR(whole, 0.33, 0.05);  // less than a half, because borders cut rectangles off
}

TEST(Mix, BlendsBothImagesAndExchangesRectangles) {
  std::vector<float> first(360), second(360);
  for (size_t i = 0; i < 360; ++i) first[i] = static_cast<float>(i), second[i] = 1000 - 2 * static_cast<float>(i);
  const PairMix blend{.share = RowLabel::kShareUnits / 4};
  auto a = first, b = second;
  mix_images(blend, kImage, a.data(), b.data());
  for (size_t i = 0; i < 360; ++i) {
    ASSERT_FLOAT_EQ(a[i], 0.25f * first[i] + 0.75f * second[i]);
    ASSERT_FLOAT_EQ(b[i], 0.25f * second[i] + 0.75f * first[i]);
  }
  const PairMix cut{.share = RowLabel::kShareUnits / 2, .cut = {2, 3, 4, 5}};
  a = first, b = second;
  mix_images(cut, kImage, a.data(), b.data());
  for (int y = 0; y < 12; ++y)
    for (int x = 0; x < 10; ++x)
      for (int c = 0; c < 3; ++c) {
        const auto at = static_cast<size_t>((y * 10 + x) * 3 + c);
        const bool inside = y >= 2 && y < 6 && x >= 3 && x < 8;
        ASSERT_EQ(a[at], inside ? second[at] : first[at]);
        ASSERT_EQ(b[at], inside ? first[at] : second[at]);
      }
}

TEST(Mix, WritesTheLabelOfTheLargerShareFirst) {
  const int32_t own = 5, other = 9;
  int32_t label[3];
  write_mixed_label({.share = RowLabel::kShareUnits / 4 * 3}, &own, &other, 0, label);
  EXPECT_THAT(label, testing::ElementsAre(5, 9, RowLabel::kShareUnits / 4 * 3));
  write_mixed_label({.share = RowLabel::kShareUnits / 4}, &own, &other, 0, label);
  EXPECT_THAT(label, testing::ElementsAre(9, 5, RowLabel::kShareUnits / 4 * 3));
}

TEST(Mix, TargetsAreMixedWithTheSharesOfTheLabels) {
  const int32_t own[] = {5, bits_of_target(1), bits_of_target(0.5f)}, other[] = {9, bits_of_target(0), own[2]};
  int32_t row[5];
  write_mixed_label({.share = RowLabel::kShareUnits / 4}, own, other, 2, row);
  EXPECT_THAT(row, testing::ElementsAre(9, 5, RowLabel::kShareUnits / 4 * 3, bits_of_target(0.25f), own[2]));
}

LoaderSettings mixing(const MixSettings& mix, int64_t size = 23, int64_t batch = 9) {
  LoaderSettings made;
  made.dataset = numbered_images(size);
  AugmentSettings augment{.crop = 3, .pad = 1, .mirror = true};
  augment.mix = mix;
  made.augmenter = std::make_shared<Augmenter>(augment, made.dataset->image());
  made.batch = batch;
  made.seed = 11;
  return made;
}

const MixSettings kKinds[] = {{.mixup = 0.4}, {.cutmix = 1}, {.mixup = 1, .cutmix = 1}};

// Steps of 9, 9 and 5 rows: the last row of each is by itself.
TEST(MixingLoader, MixesNeighboursOfTheStepAndTheirLabels) {
  for (const MixSettings& kind : kKinds) {
    const auto plain = run(mixing({}), 6), found = run(mixing(kind), 6);
    for (size_t step = 0; step < 6; ++step) {
      const auto rows = static_cast<int64_t>(plain[step].labels.size());
      ASSERT_EQ(std::ssize(found[step].labels), 3 * rows);
      for (int64_t row = 0; row < rows; row += 2) {
        const auto at = [&](int64_t i) { return static_cast<size_t>(i); };
        const int32_t own = plain[step].labels[at(row)];
        const int64_t beside = std::min(row + 1, rows - 1);
        const int32_t other = plain[step].labels[at(beside)];
        PairMix mix;
        if (beside > row)
          mix = draw_mix(kind, {3, 3, 3}, {.training = true, .seed = 11, .epoch = plain[step].epoch}, own);
        std::vector<float> a(plain[step].images.begin() + 27 * row, plain[step].images.begin() + 27 * (row + 1));
        std::vector<float> b(plain[step].images.begin() + 27 * beside, plain[step].images.begin() + 27 * (beside + 1));
        mix_images(mix, {3, 3, 3}, a.data(), b.data());
        const auto label = [&](int64_t i) {
          return std::vector<int32_t>(found[step].labels.begin() + 3 * i, found[step].labels.begin() + 3 * i + 3);
        };
        const auto image = [&](int64_t i) {
          return std::vector<float>(found[step].images.begin() + 27 * i, found[step].images.begin() + 27 * (i + 1));
        };
        int32_t wanted[3];
        write_mixed_label(mix, &own, &other, 0, wanted);
        EXPECT_THAT(label(row), testing::ElementsAreArray(wanted));
        EXPECT_EQ(image(row), a);
        if (beside == row) continue;
        write_mixed_label(mix, &other, &own, 0, wanted);
        EXPECT_THAT(label(beside), testing::ElementsAreArray(wanted));
        EXPECT_EQ(image(beside), b);
      }
    }
  }
}

TEST(MixingLoader, MakesTheSameForEveryNumberOfRanksAndThreads) {
  for (const MixSettings& kind : kKinds)
    for (const int64_t batch : {9, 40}) {
      const auto whole = run(mixing(kind, 100, batch), 14);
      for (int ranks = 1; ranks <= 5; ++ranks)
        for (const int threads : {1, 3}) {
          std::vector<Copy> joined(whole.size());
          for (int rank = 0; rank < ranks; ++rank) {
            LoaderSettings made = of_rank(mixing(kind, 100, batch), ranks, rank);
            made.threads = threads;
            const auto part = run(made, 14);
            for (size_t i = 0; i < part.size(); ++i) {
              joined[i].epoch = part[i].epoch, joined[i].step_in_epoch = part[i].step_in_epoch;
              joined[i].step_rows = part[i].step_rows;
              joined[i].images.insert(joined[i].images.end(), part[i].images.begin(), part[i].images.end());
              joined[i].labels.insert(joined[i].labels.end(), part[i].labels.begin(), part[i].labels.end());
            }
          }
          EXPECT_EQ(joined, whole) << ranks << " ranks, " << threads << " threads, batch " << batch;
        }
    }
}

TEST(MixingLoader, MixesTargetsLikeLabelsForEveryNumberOfRanks) {
  LoaderSettings made = mixing({.mixup = 1});
  made.dataset = std::make_shared<TargetedImages>(23);
  const std::vector<Copy> whole = run(made, 3), plain = [&] {
    LoaderSettings unmixed = made;
    unmixed.augmenter = mixing({}).augmenter;
    return run(unmixed, 3);
  }();
  for (size_t step = 0; step < 3; ++step) {
    std::vector<int32_t> joined;
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<int32_t> part = run(of_rank(made, 4, rank), 3)[step].labels;
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole[step].labels);
    const LabelRows mixed{true, 3}, alone{false, 3};
    const auto rows = std::ssize(whole[step].labels) / mixed.numbers();
    for (int64_t row = 0; row < rows; ++row) {
      const int32_t *found = mixed.targets_of(whole[step].labels.data(), row),
                    *first = alone.targets_of(plain[step].labels.data(), row / 2 * 2),
                    *second = alone.targets_of(plain[step].labels.data(), std::min(row / 2 * 2 + 1, rows - 1));
      const float share = mixed.label(whole[step].labels.data(), row).share;
      for (int64_t c = 0; c < 3; ++c) {
        const float a = target_of(first[c]), b = target_of(second[c]);
        EXPECT_NEAR(std::abs(target_of(found[c]) - (a + b) / 2), std::abs(a - b) * (share - 0.5f), 1e-6) << row;
      }
    }
  }
}

TEST(MixingLoader, MixesNothingInEvaluation) {
  LoaderSettings mixes = mixing(kKinds[2]), plain = mixing({});
  mixes.training = plain.training = false;
  const auto found = run(mixes, 3), wanted = run(plain, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found[i].images, wanted[i].images);
    for (size_t row = 0; row < wanted[i].labels.size(); ++row)
      EXPECT_THAT(std::vector<int32_t>(found[i].labels.begin() + static_cast<long>(3 * row),
                                       found[i].labels.begin() + static_cast<long>(3 * row + 3)),
                  testing::ElementsAre(wanted[i].labels[row], wanted[i].labels[row], RowLabel::kShareUnits));
  }
}

TEST(MixingLoader, MixesInBf16WhatIsRoundedAlready) {
  LoaderSettings made = mixing({.mixup = 1}, 40, 8);
  made.images = DType::kBF16;
  const auto found = run(made, 3), wide = run(mixing({.mixup = 1}, 40, 8), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found[i].labels, wide[i].labels);
    for (size_t e = 0; e < wide[i].images.size(); ++e) EXPECT_NEAR(found[i].images[e], wide[i].images[e], 0.01 * 251);
  }
}

}  // namespace
}  // namespace owt::mix_test

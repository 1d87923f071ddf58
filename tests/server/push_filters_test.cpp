// Filters of pushed gradients: what is sent, what is held back, bytes, and unbiased means.
#include "src/server/push_filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/core/bf16.h"
#include "src/system/check.h"
#include "tests/support/message_of.h"

namespace owt::push_filters_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Value = FilterSettings::Value;

const Philox kRandom(1, RandomStream::kTest, 0, "filters");

std::vector<float> drawn(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = kRandom.normal(i);
  return values;
}

std::vector<float> rounded(std::vector<float> values, Value value, uint64_t first_draw = 0) {
  round_to(values, Sent(values.size(), true), value, kRandom, first_draw);
  return values;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(PushFiltersTest, HalfPrecisionIsToNearestEven) {
  EXPECT_THAT(rounded({1 + 0x1p-11f, 1 + 0x1p-11f + 0x1p-20f, 1 + 3 * 0x1p-11f, -3.1415927f}, Value::kFp16),
              ElementsAre(1.0f, 1 + 0x1p-10f, 1 + 0x1p-9f, -3.140625f));
  EXPECT_THAT(rounded({1e6f, -1e6f, 65504, 0, 0x1p-24f, 0x1.8p-25f, 0x1p-26f}, Value::kFp16),
              ElementsAre(65504.0f, -65504.0f, 65504.0f, 0.0f, 0x1p-24f, 0x1p-24f, 0.0f));
  for (const float x : drawn(100)) EXPECT_EQ(rounded({x}, Value::kBf16)[0], from_bf16(to_bf16(x)));
}

// A level and the next one, the least and the largest entry being levels themselves.
TEST(PushFiltersTest, FixingTakesOneOfTheTwoNearestLevels) {
  for (const auto& [value, bits] : {std::pair(Value::kFix8, 8), std::pair(Value::kFix16, 16)}) {
    const std::vector<float> before = drawn(1000), after = rounded(before, value);
    const auto [least, most] = std::minmax_element(before.begin(), before.end());
    const double level = (static_cast<double>(*most) - static_cast<double>(*least)) / (std::ldexp(1.0, bits) - 2);
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_LT(std::fabs(static_cast<double>(after[i]) - static_cast<double>(before[i])), level + 1e-6) << i;
    EXPECT_EQ(after[static_cast<size_t>(most - before.begin())], *most);
    EXPECT_EQ(after[static_cast<size_t>(least - before.begin())], *least);
  }
}

// The mean of many draws of an entry at a quarter of the way between two levels: the coin is off by a quarter of it.
TEST(PushFiltersTest, ProportionalRoundingIsRightInTheMeanAndACoinIsNot) {
  constexpr double kLevel = 1.0 / 254;
  constexpr int kDraws = 20000;
  for (const double place : {0.05, 0.25, 0.5, 0.9}) {
    const auto x = static_cast<float>((100 + place) * kLevel);
    const auto mean_error = [&](Value value) {
      std::vector<double> errors(kDraws);
      for (int i = 0; i < kDraws; ++i)
        errors[static_cast<size_t>(i)] =
            static_cast<double>(rounded({0, 1, x}, value, static_cast<uint64_t>(4 * i))[2]) - static_cast<double>(x);
      return mean(errors) / kLevel;
    };
    EXPECT_NEAR(mean_error(Value::kFix8), 0, 0.02) << place;
    EXPECT_NEAR(mean_error(Value::kCoin8), 0.5 - place, 0.02) << place;
  }
}

TEST(PushFiltersTest, EqualValuesStayAsTheyAre) { EXPECT_THAT(rounded({0.3f, 0.3f, 0.3f}, Value::kFix8), Each(0.3f)); }

TEST(PushFiltersTest, SkippingIsRightInTheMean) {
  constexpr size_t kCount = 40000;
  std::vector<float> values(kCount, 2);
  Sent sent(kCount, true);
  skip_at_random(values, 0.25, kRandom, 0, sent);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / kCount, 2, 0.1);
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(values[i], sent[i] ? 8.0f : 0.0f);
}

TEST(PushFiltersTest, TopKeepsTheLargestAndHoldsTheRestBack) {
  std::vector<float> values = {1, -5, 2, 4, -3}, residual(5);
  Sent sent(5, true);
  keep_top(values, residual, 0.4, sent);
  EXPECT_THAT(values, ElementsAre(0, -5, 0, 4, 0));
  EXPECT_THAT(residual, ElementsAre(1, 0, 2, 0, -3));
  EXPECT_THAT(sent, ElementsAre(false, true, false, true, false));
  values = {1, 1, 1, 1, 1};
  sent.assign(5, true);
  keep_top(values, residual, 1e-9, sent);
  EXPECT_THAT(values, ElementsAre(1, 0, 0, 0, 0));  // the first of equals
}

TEST(PushFiltersTest, WhatIsNotSignificantWaitsUntilItIs) {
  PushFilter filter({.significant = 1}, 1, 0);
  double sent_in_all = 0;
  for (int task = 0; task < 10; ++task) {
    std::vector<float> gradient = {10, 3, -1, 2};
    filter.apply(0, gradient, task);
    sent_in_all += static_cast<double>(gradient[1]);
    EXPECT_NE(gradient[0], 0);
  }
  EXPECT_GT(sent_in_all, 15);  // without the filter 30
}

// With a threshold of 1: entries whose gradient is smaller than the penalty, where the weight is 0 already.
TEST(PushFiltersTest, WhatAPenaltyHoldsAtZeroIsNotSent) {
  PushFilter filter({.kkt = 1}, 1, 0);
  const std::vector<float> weights = {0, 0, 0, 1, 0};
  std::vector<float> gradient = {0.5, -0.25, 2, 0.25, NAN};
  EXPECT_EQ(filter.apply(0, gradient, 0, {weights, 0.5}).count(), 3);
  EXPECT_THAT(std::span(gradient).first(4), ElementsAre(0, 0, 2, 0.25));
  EXPECT_TRUE(std::isnan(gradient[4]));
  PushFilter of_nothing({.kkt = 1}, 1, 0);
  EXPECT_EQ(of_nothing.apply(0, gradient, 0, {weights, 0}).count(), 5);
  PushFilter half({.kkt = 0.5}, 1, 0);
  gradient = {0.25, 0.375, -0.25, 0, 0};
  half.apply(0, gradient, 0, {weights, 0.5});
  EXPECT_THAT(gradient, ElementsAre(0, 0.375, 0, 0, 0));
}

// With any choice of entries, everything arrives in the end except the part that is still held back.
TEST(PushFiltersTest, FeedbackLosesNothing) {
  PushFilter filter({.top = 0.1}, 1, 0);
  std::vector<double> arrived(50);
  for (int task = 0; task < 200; ++task) {
    std::vector<float> gradient = drawn(50);
    filter.apply(3, gradient, task);
    for (size_t i = 0; i < 50; ++i) arrived[i] += static_cast<double>(gradient[i]);
  }
  const std::vector<float> each = drawn(50);
  for (size_t i = 0; i < 50; ++i) EXPECT_NEAR(arrived[i], 200 * static_cast<double>(each[i]), 25) << i;
}

TEST(PushFiltersTest, CountsBytes) {
  const auto of_all = [](Value value, int64_t tensors) {
    return FilterSettings{.value = value}.message_bytes(1000, 1000, tensors);
  };
  EXPECT_EQ(of_all(Value::kF32, 3), 4000);
  EXPECT_EQ(of_all(Value::kBf16, 3), 2000);
  EXPECT_EQ(of_all(Value::kFix8, 1), 1008);
  EXPECT_EQ(of_all(Value::kCoin16, 3), 2024);
  const FilterSettings top{.top = 0.01}, skip{.skip = 0.1, .value = Value::kFix8};
  EXPECT_EQ(top.message_bytes(1000, 10), 8 + 40 + 40);          // the entries as indexes
  EXPECT_EQ(skip.message_bytes(1000, 100), 8 + 100 + 125 + 8);  // the entries as bits
  EXPECT_EQ(skip.message_bytes(1000, 1000), 8 + 1000 + 8);      // all
  PushFilter filter({.top = 0.01, .value = Value::kFp16}, 1, 0);
  std::vector<float> gradient = drawn(1000);
  EXPECT_EQ(filter.apply(0, gradient, 0).count(), 10);
}

// What is drawn is a function of the seed, the worker, the task and the tensor.
TEST(PushFiltersTest, DrawsNewNumbersForEveryMessage) {
  const auto sent = [](uint64_t seed, int worker, size_t tensor, int64_t task) {
    PushFilter filter({.skip = 0.5}, seed, worker);
    std::vector<float> ones(64, 1);
    filter.apply(tensor, ones, task);
    return ones;
  };
  EXPECT_EQ(sent(1, 0, 0, 0), sent(1, 0, 0, 0));
  EXPECT_NE(sent(1, 0, 0, 0), sent(2, 0, 0, 0));
  EXPECT_NE(sent(1, 0, 0, 0), sent(1, 1, 0, 0));
  EXPECT_NE(sent(1, 0, 0, 0), sent(1, 0, 1, 0));
  EXPECT_NE(sent(1, 0, 0, 0), sent(1, 0, 0, 1));
}

TEST(PushFiltersTest, ReadsAndSaysWhatItIs) {
  const FilterSettings all = filters_from({"top:0.01", "significant:0.5", "skip:0.25", "fix8"});
  EXPECT_EQ(all, (FilterSettings{.significant = 0.5, .top = 0.01, .skip = 0.25, .value = Value::kFix8}));
  EXPECT_EQ(all.text(), "significant:0.5, top:0.01, skip:0.25, fix8");
  EXPECT_FALSE(filters_from({}).any());
  for (const char* wrong :
       {"top", "top:", "top:0", "top:x", "top:2", "kkt", "kkt:0", "skip:-1", "skip:1.5", "fix9", "", ":", "bf16:1"})
    EXPECT_THROW(filters_from({wrong}), Error) << wrong;
  EXPECT_THAT(message_of([] { filters_from({"fix8", "bf16"}); }), HasSubstr("values have one type"));
  EXPECT_THAT(message_of([] { filters_from({"top:0.1", "top:0.2"}); }), HasSubstr("given twice"));
  EXPECT_EQ(filters_from({"kkt:0.5"}).text(), "kkt:0.5");
}

}  // namespace
}  // namespace owt::push_filters_test

#include "layers/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/core/philox.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::dropout_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using DropoutTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, DropoutTest, testing::ValuesIn(devices()), device_name);

TEST_P(DropoutTest, KeepsTheLayerContract) {
  check_layer("type='dropout' rate=0.5", {4, 31}, device());
  check_layer("type='dropout' rate=0.3", {3, 4, 5, 7}, device());
  check_layer("type='dropout' rate=0.1", {9, 4001}, device(), {.samples = 0});
}

TEST_P(DropoutTest, MaskIsTheFunctionOfSeedStepNameRowAndColumn) {
  Harness dropout("name='drop6' type='dropout' rate=0.25", {3, 7}, device());
  dropout.pass().seed = 99;
  dropout.pass().step = 12;
  dropout.rows() = {5, 0, 1000000};
  const std::vector<float> y = dropout.forward(std::vector<float>(21, 3.0f));
  const Philox random(99, RandomStream::kDropout, 12, "drop6");
  for (size_t row = 0; row < 3; ++row)
    for (size_t column = 0; column < 7; ++column) {
      const auto element = static_cast<uint64_t>(dropout.rows()[row]) * 7 + column;
      EXPECT_EQ(y[row * 7 + column], random.uniform(element) < 0.25f ? 0.0f : 4.0f) << row << ", " << column;
    }
}

TEST_P(DropoutTest, AnotherStepDropsOtherElements) {
  Harness dropout("type='dropout' rate=0.5", {1, 64}, device());
  const std::vector<float> x(64, 1.0f), first = dropout.forward(x);
  dropout.pass().step = 1;
  EXPECT_NE(dropout.forward(x), first);
}

TEST_P(DropoutTest, DropsTheShareThatRateAsksFor) {
  const int64_t elements = 40000;
  Harness dropout("type='dropout' rate=0.3", {4, elements / 4}, device());
  const std::vector<float> y = dropout.forward(std::vector<float>(elements, 1.0f));
  // Standard deviation of the share: sqrt(0.3 * 0.7 / 40000) = 0.0023.
  EXPECT_NEAR(static_cast<double>(std::count(y.begin(), y.end(), 0.0f)) / elements, 0.3, 0.01);
}

TEST_P(DropoutTest, GradientPassesWhereTheValuePassed) {
  Harness dropout("type='dropout' rate=0.5", {2, 32}, device());
  const std::vector<float> ones(64, 1.0f), y = dropout.forward(ones);
  EXPECT_THAT(y, testing::Contains(0.0f));
  EXPECT_THAT(y, testing::Contains(2.0f));
  EXPECT_EQ(dropout.backward(ones), y);
}

TEST_P(DropoutTest, EvaluationIsTheIdentity) {
  Harness dropout("type='dropout' rate=0.9", {1, 4}, device());
  EXPECT_THAT(dropout.evaluate({1, -2, 3, 4}), ElementsAre(1, -2, 3, 4));
}

TEST_P(DropoutTest, RateZeroKeepsEverything) {
  Harness dropout("type='dropout' rate=0", {1, 100}, device());
  EXPECT_THAT(dropout.forward(std::vector<float>(100, 5.0f)), Each(5.0f));
}

TEST_P(DropoutTest, OfWholeRowsKeepsTheLayerContract) {
  check_layer("type='drop_path' rate=0.5", {6, 31}, device());
  check_layer("type='drop_path' rate=0.3", {5, 4, 5, 7}, device());
}

TEST_P(DropoutTest, OfWholeRowsDropsByTheNumberOfTheRow) {
  Harness path("name='path' type='drop_path' rate=0.25", {8, 1, 3, 2}, device());
  path.pass().seed = 99;
  path.pass().step = 12;
  path.rows() = {5, 0, 1000000, 1, 2, 3, 4, 9};
  const std::vector<float> ones(48, 1.0f), y = path.forward(std::vector<float>(48, 3.0f));
  const std::vector<float> dx = path.backward(ones);
  const Philox random(99, RandomStream::kDropout, 12, "path");
  int64_t dropped = 0;
  for (size_t row = 0; row < 8; ++row) {
    const bool drops = random.uniform(static_cast<uint64_t>(path.rows()[row])) < 0.25f;
    dropped += drops;
    for (size_t i = row * 6; i < row * 6 + 6; ++i) {
      EXPECT_EQ(y[i], drops ? 0.0f : 4.0f) << row;
      EXPECT_FLOAT_EQ(dx[i], drops ? 0.0f : 4 / 3.0f) << row;
    }
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, 8);
  EXPECT_EQ(path.evaluate(ones), ones);
}

// Ranks with other columns of a row must drop the same rows.
TEST(DropPath, PartsOfTheColumnsDropTheSameRows) {
  for (const Slice part : {Slice{0, 2}, Slice{2, 5}}) {
    Harness whole("type='drop_path' rate=0.5", {16, 5}, Device::kCpu);
    Harness of_part(layer_from("type='drop_path' rate=0.5", {16, 5}, part), {16, part.size()}, Device::kCpu);
    const auto width = static_cast<size_t>(part.size());
    const std::vector<float> all = whole.forward(std::vector<float>(80, 1.0f));
    const std::vector<float> some = of_part.forward(std::vector<float>(16 * width, 1.0f));
    for (size_t row = 0; row < 16; ++row) EXPECT_EQ(some[row * width], all[row * 5]) << row;
  }
}

TEST(DropoutKeys, RateOneIsAnError) {
  EXPECT_THAT(message_of([] { layer_from("type='dropout' rate=1", {1, 4}); }), HasSubstr("'rate' is 1"));
}

}  // namespace
}  // namespace owt::dropout_test

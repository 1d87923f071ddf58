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

TEST(DropoutKeys, RateOneIsAnError) {
  EXPECT_THAT(message_of([] { layer_from("type='dropout' rate=1", {1, 4}); }), HasSubstr("'rate' is 1"));
}

}  // namespace
}  // namespace owt::dropout_test

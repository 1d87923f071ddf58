#include "layers/relu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

using testing::ElementsAre;

class ReluTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ReluTest, testing::ValuesIn(devices()), device_name);

TEST_P(ReluTest, KeepsTheLayerContract) {
  check_layer("type='relu'", {3, 4, 5, 6}, device());
  check_layer("type='relu'", {6, 10}, device());
  check_layer("type='relu'", {5, 8000}, device(), {.samples = 0});
}

TEST_P(ReluTest, NegativeValuesBecomeZeroAndGetNoGradient) {
  Harness relu("type='relu'", {1, 4}, device());
  EXPECT_THAT(relu.forward({-1, 2, -3, 4}), ElementsAre(0, 2, 0, 4));
  EXPECT_THAT(relu.backward({5, 6, 7, 8}), ElementsAre(0, 6, 0, 8));
}

TEST_P(ReluTest, ZeroGetsNoGradient) {
  Harness relu("type='relu'", {1, 2}, device());
  EXPECT_THAT(relu.forward({0, -0.0f}), ElementsAre(0, 0));
  EXPECT_THAT(relu.backward({5, 6}), ElementsAre(0, 0));
}

TEST_P(ReluTest, NaNIsNotHidden) {
  Harness relu("type='relu'", {1, 1}, device());
  EXPECT_TRUE(std::isnan(relu.forward({std::numeric_limits<float>::quiet_NaN()})[0]));
}

}  // namespace
}  // namespace owt

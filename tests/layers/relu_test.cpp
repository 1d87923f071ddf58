#include "layers/relu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt::relu_test {
namespace {

using testing::ElementsAre;

using ReluTest = DeviceTest;
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

TEST_P(ReluTest, RowsOfALargerTensorMayStartAnywhere) {
  DevicePass pass(device(), 3);
  Tensor all = upload({-1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7, -8}, {3, 5}, device());
  Tensor some = all.rows(1, 3);
  const auto op = layer_from("type='relu'", {2, 5})->bind({2, 5}, device());
  op->forward(pass.pass(), some, some);
  pass.stream().synchronize();
  EXPECT_THAT(download(all), ElementsAre(-1, 1, -2, 2, -3, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0));
}

TEST_P(ReluTest, NaNIsNotHidden) {
  Harness relu("type='relu'", {1, 1}, device());
  EXPECT_TRUE(std::isnan(relu.forward({std::numeric_limits<float>::quiet_NaN()})[0]));
}

}  // namespace
}  // namespace owt::relu_test

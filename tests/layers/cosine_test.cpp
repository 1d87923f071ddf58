#include "layers/cosine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::cosine_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;

using CosineTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, CosineTest, testing::ValuesIn(devices()), device_name);

// Rows of more elements than a block has threads too. The small weights of the default would make steps of 0.01 large.
// Gradients are rounded before their product, after it, and without their radial components.
TEST_P(CosineTest, KeepsTheLayerContract) {
  constexpr double kRounding = 0x1p-5;
  const std::string init = " init={type='gaussian',std=1}";
  check_layer("type='cosine' out=5" + init, {4, 7}, device(), {.rounding = kRounding});
  check_layer("type='cosine' out=6" + init, {3, 2, 3, 4}, device(), {.rounding = kRounding});
  check_layer("type='cosine' out=33" + init, {5, 40}, device(), {.rounding = kRounding});
  check_layer("type='cosine' out=300" + init, {3, 17}, device(), {.rounding = kRounding, .samples = 0});
  check_layer("type='cosine' out=4" + init, {2, 1100}, device(), {.rounding = kRounding, .samples = 0});
}

TEST_P(CosineTest, OutputsAreCosines) {
  Harness cosine("type='cosine' out=3", {2, 2}, device());
  cosine.set_param("weight", {0.5, 0,  //
                              3, 4,    //
                              -1, 1});
  EXPECT_THAT(cosine.forward({7, 0,  //
                              -2, 2}),
              Pointwise(FloatNear(1e-6f), {1.0f, 0.6f, -std::sqrt(0.5f),  //
                                           -std::sqrt(0.5f), 0.2f * std::sqrt(0.5f), 1.0f}));
}

// x and w are at a right angle; turning either by a small angle changes the cosine by that angle.
TEST_P(CosineTest, GradientsTurnAndDoNotStretch) {
  Harness cosine("type='cosine' out=1", {1, 2}, device());
  cosine.set_param("weight", {0, 5});
  EXPECT_THAT(cosine.forward({2, 0}), ElementsAre(0));
  EXPECT_THAT(cosine.backward({3}), Pointwise(FloatNear(1e-6f), {0.0f, 1.5f}));
  EXPECT_THAT(cosine.grad("weight"), Pointwise(FloatNear(1e-6f), {0.6f, 0.0f}));
  cosine.forward({4, 10});  // one direction of x only is left
  const std::vector<float> dx = cosine.backward({1});
  EXPECT_NEAR(dx[0] * 4 + dx[1] * 10, 0, 1e-6);
  EXPECT_LT(dx[0], 0);
}

TEST_P(CosineTest, RowsOfZerosHaveNoCosineAndNoGradient) {
  Harness cosine("type='cosine' out=2", {2, 3}, device());
  cosine.set_param("weight", {0, 0, 0,  //
                              1, 2, 2});
  EXPECT_THAT(cosine.forward({0, 0, 0,  //
                              3, 0, 0}),
              Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.0f, 1.0f / 3}));
  const std::vector<float> dx = cosine.backward({1, 2, 3, 4});
  EXPECT_THAT(std::vector<float>(dx.begin(), dx.begin() + 3), Each(0));
  EXPECT_GT(dx[4], 0);
  const std::vector<float> dw = cosine.grad("weight");
  EXPECT_THAT(std::vector<float>(dw.begin(), dw.begin() + 3), Each(0));
  EXPECT_GT(dw[3], 0);
}

TEST_P(CosineTest, TheLengthsOfRowsDoNotMatter) {
  const std::vector<float> x = distinct_values(5 * 8, 1, 3), w = distinct_values(6 * 8, 1, 4);
  std::vector<float> tiny = x, huge = w;
  for (float& value : tiny) value *= 1e-9f;
  for (float& value : huge) value *= 1e9f;
  Harness cosine("type='cosine' out=6", {5, 8}, device());
  cosine.set_param("weight", w);
  const std::vector<float> wanted = cosine.forward(x);
  cosine.set_param("weight", huge);  // the op sees that the weight has changed
  EXPECT_THAT(cosine.forward(tiny), Pointwise(FloatNear(1e-6f), wanted));
}

TEST_P(CosineTest, AnEmptyPartHasNoColumnsAndAZeroGradient) {
  const Shape in{2, 3};
  Harness empty(layer_from("type='cosine' out=3", in, Slice{3, 3}), in, device());
  EXPECT_THAT(empty.forward({1, 2, 3, 4, 5, 6}), IsEmpty());
  EXPECT_THAT(empty.backward({}), Each(0));
}

TEST(Cosine, HasAWeightOnlyAndSplitsByOutputsOnly) {
  const auto cosine = layer_from("type='cosine' out=4 lr=2", {1, 3});
  ASSERT_EQ(cosine->params().size(), 1u);
  EXPECT_EQ(cosine->params()[0]->name, "layer.weight");
  EXPECT_EQ(cosine->params()[0]->init.std, 0.01);
  EXPECT_EQ(cosine->params()[0]->lr_mult, 2);
  EXPECT_EQ(cosine->columns(), Columns::kSplits);
  EXPECT_FALSE(cosine->can_split_inputs());
  EXPECT_THAT(message_of([] { layer_from("type='cosine' out=4 bias=true", {1, 3}); }), HasSubstr("bias"));
}

}  // namespace
}  // namespace owt::cosine_test

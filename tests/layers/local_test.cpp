#include "layers/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::local_test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

using Values = std::vector<float>;

using LocalTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, LocalTest, testing::ValuesIn(devices()), device_name);

TEST_P(LocalTest, KeepsTheLayerContract) {
  check_layer("type='local' out=7 kernel=3 pad=1", {3, 4, 5, 3}, device());
  check_layer("type='local' out=3 kernel=[2,3] stride=2 round='up' bias=false", {2, 6, 7, 3}, device());
  check_layer("type='local' out=5 kernel=3 stride=[3,1] pad=[2,0]", {2, 4, 5, 2}, device());
  check_layer("type='local' out=4 kernel=1", {5, 2, 2, 6}, device());
}

TEST_P(LocalTest, WithTheSameWeightsEverywhereIsAConvolution) {
  const Shape in{2, 5, 6, 3};
  const std::string keys = " out=4 kernel=[3,2] stride=[2,1] pad=[1,0]";
  Harness conv("type='conv'" + keys, in, device()), local("type='local'" + keys, in, device());
  const int64_t positions = conv.out_shape()[1] * conv.out_shape()[2], seen = 3 * 2 * 3;
  const Values weight = conv.value("weight");
  Values repeated;
  for (int64_t o = 0; o < 4; ++o)
    for (int64_t p = 0; p < positions; ++p)
      repeated.insert(repeated.end(), weight.begin() + o * seen, weight.begin() + (o + 1) * seen);
  local.set_param("weight", repeated);
  const Values x = distinct_values(in.elements(), 2, 3), dy = distinct_values(local.out_shape().elements(), 1, 4);
  EXPECT_THAT(local.forward(x), testing::Pointwise(testing::FloatNear(1e-5f), conv.forward(x)));
  EXPECT_THAT(local.backward(dy), testing::Pointwise(testing::FloatNear(1e-5f), conv.backward(dy)));
  const Values gradients = local.grad("weight");
  Values sums(weight.size(), 0.0f);
  for (size_t i = 0; i < gradients.size(); ++i)
    sums[i / static_cast<size_t>(positions * seen) * static_cast<size_t>(seen) + i % static_cast<size_t>(seen)] +=
        gradients[i];
  EXPECT_THAT(sums, testing::Pointwise(testing::FloatNear(1e-4f), conv.grad("weight")));
}

Values pattern(int64_t count, int64_t factor, int64_t modulus, int64_t less, float divisor) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * factor % modulus - less) / divisor);
  return values;
}

// The figures are from Local of tools/bench/torch_net.py: torch.nn.Unfold and einsum, PyTorch 2.15 in f64.
TEST_P(LocalTest, GivesPyTorchsFigures) {
  Harness local("type='local' out=2 kernel=2 pad=[0,1]", {1, 2, 3, 2}, device());
  ASSERT_EQ(local.out_shape(), (Shape{1, 1, 4, 2}));
  local.set_param("weight", pattern(64, 7, 11, 5, 4));
  local.set_param("bias", pattern(8, 3, 5, 2, 8));
  EXPECT_THAT(local.forward(pattern(12, 5, 7, 3, 2)),
              ElementsAre(1.25f, -2.375f, 5.375f, -1.625f, 1.125f, -0.25f, -0.875f, 2.625f));
  EXPECT_THAT(local.backward(pattern(8, 3, 7, 3, 1)),
              ElementsAre(-1.5f, -0.5f, -3.5f, 0, -4, 0.75f, -0.25f, -2, 7.75f, -2.5f, 1.25f, 0.5f));
  EXPECT_THAT(local.grad("bias"), ElementsAre(-3, 3, 2, 1, 0, -1, -2, -3));
  EXPECT_THAT(local.grad("weight"),
              ElementsAreArray({0.0f,  0.0f, 4.5f,  -3.0f, 0.0f,  0.0f,  1.5f, 4.5f,  -4.5f, 3.0f,  0.0f, -3.0f, -1.5f,
                                -4.5f, 3.0f, 0.0f,  0.0f,  -2.0f, 3.0f,  1.0f, 2.0f,  0.0f,  -2.0f, 3.0f, 1.5f,  0.5f,
                                0.0f,  0.0f, -1.0f, 1.5f,  0.0f,  0.0f,  0.0f, 0.0f,  0.0f,  0.0f,  0.0f, 0.0f,  0.0f,
                                0.0f,  1.5f, -1.0f, 0.0f,  1.0f,  0.5f,  1.5f, -1.0f, 0.0f,  0.0f,  2.0f, -3.0f, -1.0f,
                                -2.0f, 0.0f, 2.0f,  -3.0f, -4.5f, -1.5f, 0.0f, 0.0f,  3.0f,  -4.5f, 0.0f, 0.0f}));
}

TEST_P(LocalTest, FrozenParametersHaveNoGradient) {
  auto layer = layer_from("type='local' out=2 kernel=1", {1, 1, 1, 2});
  for (Param* param : layer->params()) param->freeze();
  Harness local(std::move(layer), {1, 1, 1, 2}, device());
  local.set_param("weight", {1, 2, 3, 4});
  EXPECT_THAT(local.forward({1, 1}), ElementsAre(3, 7));
  EXPECT_THAT(local.backward({1, 10}), ElementsAre(31, 42));
  EXPECT_FALSE(local.param("weight").grad.defined());
}

TEST(Local, HasAWeightAndABiasForEveryPosition) {
  const auto local = layer_from("name='local3' type='local' out=6 kernel=[3,5] pad=[1,2] bias={lr=2}", {1, 8, 9, 4});
  ASSERT_EQ(local->params().size(), 2u);
  const Param &weight = *local->params()[0], &bias = *local->params()[1];
  EXPECT_EQ(weight.name, "local3.weight");
  EXPECT_EQ(weight.full_shape, (Shape{6, 72, 60}));
  EXPECT_EQ(weight.file_shape, (Shape{6, 72, 60}));
  EXPECT_EQ(weight.fan_in, 60);
  EXPECT_EQ(weight.fan_out, 90);
  EXPECT_EQ(bias.full_shape, (Shape{6, 72}));
  EXPECT_EQ(bias.lr_mult, 2);
  EXPECT_EQ(local->columns(), Columns::kSplitsChannels);
}

TEST(Local, RefusesImagesOfAnotherSize) {
  const auto local = layer_from("type='local' out=6 kernel=3", {1, 8, 8, 4});
  EXPECT_THAT(message_of([&] { local->out_shape({2, 9, 8, 4}); }), HasSubstr("has weights for images of 8x8x4"));
}

}  // namespace
}  // namespace owt::local_test

#include "layers/prelu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/check_layer.h"
#include "tests/support/harness.h"

namespace owt::prelu_test {
namespace {

using testing::ElementsAre;

using PreluTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, PreluTest, testing::ValuesIn(devices()), device_name);

TEST_P(PreluTest, KeepsTheLayerContract) {
  for (const Shape& in : {Shape{3, 4, 5, 6}, {2, 3, 3, 8}, {6, 10}, {5, 1}})
    for (const char* shared : {"", " shared=true"})
      check_layer(std::string("type='activation' kind='prelu'") + shared, in, device());
  check_layer("type='activation' kind='prelu'", {6, 16, 16, 32}, device(), {.samples = 0});
}

// torch.nn.PReLU(3), PyTorch 2.15.
TEST_P(PreluTest, GivesPyTorchsFigures) {
  Harness prelu("type='activation' kind='prelu'", {2, 3}, device());
  EXPECT_THAT(prelu.forward({-1, 2, -3, 4, -5, 0}), ElementsAre(-0.25f, 2, -0.75f, 4, -1.25f, 0));
  EXPECT_THAT(prelu.backward({1, 2, 3, 4, 5, 6}), ElementsAre(0.25f, 2, 0.75f, 4, 1.25f, 1.5f));
  EXPECT_THAT(prelu.grad("weight"), ElementsAre(-1, -25, -9));
}

TEST_P(PreluTest, OneSlopeMayBeThatOfAllChannels) {
  Harness prelu("type='activation' kind='prelu' shared=true", {2, 3}, device());
  prelu.set_param("weight", {-2});
  EXPECT_THAT(prelu.forward({-1, 2, -3, 4, -5, 0}), ElementsAre(2, 2, 6, 4, 10, 0));
  EXPECT_THAT(prelu.backward({1, 2, 3, 4, 5, 6}), ElementsAre(-2, 2, -6, 4, -10, -12));
  EXPECT_THAT(prelu.grad("weight"), ElementsAre(-35));
}

TEST_P(PreluTest, AFrozenSlopeHasNoGradient) {
  auto layer = layer_from("type='activation' kind='prelu'", {1, 2});
  layer->params()[0]->freeze();
  Harness prelu(std::move(layer), {1, 2}, device());
  prelu.forward({-4, 4});
  EXPECT_THAT(prelu.backward({1, 1}), ElementsAre(0.25f, 1));
  EXPECT_FALSE(prelu.param("weight").grad.defined());
}

TEST(Prelu, TheSlopeBeginsAtAQuarterAndDoesNotDecay) {
  const auto prelu = layer_from("type='activation' kind='prelu'", {1, 4});
  const Param& weight = *prelu->params().at(0);
  EXPECT_EQ(weight.name, "layer.weight");
  EXPECT_EQ(weight.init.value, 0.25);
  EXPECT_EQ(weight.decay_mult, 0);
  EXPECT_EQ(weight.lr_mult, 1);
  const auto other = layer_from("type='activation' kind='prelu' weight={lr=2,decay=3}", {1, 4});
  EXPECT_EQ(other->params()[0]->lr_mult, 2);
  EXPECT_EQ(other->params()[0]->decay_mult, 3);
}

TEST(Prelu, ASharedSlopeCannotBeSplit) {
  EXPECT_EQ(layer_from("type='activation' kind='prelu'", {1, 4})->columns(), Columns::kKeeps);
  EXPECT_EQ(layer_from("type='activation' kind='prelu' shared=true", {1, 4})->columns(), Columns::kMixes);
}

}  // namespace
}  // namespace owt::prelu_test

#include "layers/conv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "layers/conv_cpu/conv_algorithm.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "tests/support/check_layer.h"
#include "tests/support/conv_reference.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/using_conv_algorithm.h"

namespace owt::conv_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using ConvTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, ConvTest, testing::ValuesIn(devices()), device_name);

std::vector<double> twice(std::vector<double> values) {
  for (double& value : values) value *= 2;
  return values;
}

std::vector<float> values(int64_t count, uint64_t seed) { return distinct_values(count, 1.0, seed); }

// All passes of one layer against the reference; gradients are added twice.
void expect_reference(const std::string& keys, const ConvGeometry& g, int64_t rows, Device device, double tolerance) {
  SCOPED_TRACE(keys);
  const ConvReference reference{g, rows};
  Harness conv(keys, {rows, g.in_h, g.in_w, g.in_c}, device);
  ASSERT_EQ(conv.out_shape(), (Shape{rows, g.out_h, g.out_w, g.out_c}));
  const std::vector<float> x = values(rows * g.in_h * g.in_w * g.in_c, 1);
  const std::vector<float> dy = values(conv.out_shape().elements(), 2);
  const std::vector<float> weight = conv.value("weight");
  const bool biased = conv.layer().params().size() > 1;
  if (biased) conv.set_param("bias", values(g.out_c, 3));

  EXPECT_NEAR(
      relative_error(conv.forward(x), reference.y(x, weight, biased ? conv.value("bias") : std::vector<float>{})), 0,
      tolerance);
  EXPECT_NEAR(relative_error(conv.backward(dy), reference.dx(dy, weight)), 0, tolerance);
  EXPECT_NEAR(relative_error(conv.grad("weight"), reference.dw(x, dy)), 0, tolerance);
  if (biased) {
    EXPECT_NEAR(relative_error(conv.grad("bias"), reference.db(dy)), 0, tolerance);
  }
  conv.backward_without_dx(dy);
  EXPECT_NEAR(relative_error(conv.grad("weight"), twice(reference.dw(x, dy))), 0, tolerance);
  if (biased) {
    EXPECT_NEAR(relative_error(conv.grad("bias"), twice(reference.db(dy))), 0, tolerance);
  }
}

TEST_P(ConvTest, SumsProductsOverTheWindow) {
  Harness conv("type='conv' out=1 kernel=2", {1, 3, 3, 1}, device());
  conv.set_param("weight", {1, 2, 3, 4});
  conv.set_param("bias", {10});
  EXPECT_THAT(conv.forward({1, 0, 0,  //
                            0, 1, 0,  //
                            0, 0, 1}),
              ElementsAre(10 + 1 + 4, 10 + 3, 10 + 2, 10 + 1 + 4));
}

TEST_P(ConvTest, GradientsGoToEveryFactor) {
  Harness conv("type='conv' out=1 kernel=2", {1, 2, 3, 1}, device());
  conv.set_param("weight", {1, 2, 3, 4});
  conv.forward({1, 2, 3,  //
                4, 5, 6});
  EXPECT_THAT(conv.backward({10, 1}), ElementsAre(10, 20 + 1, 2,  //
                                                  30, 40 + 3, 4));
  EXPECT_THAT(conv.grad("weight"), ElementsAre(10 + 2, 20 + 3, 40 + 5, 50 + 6));
  EXPECT_THAT(conv.grad("bias"), ElementsAre(11));
}

TEST_P(ConvTest, ChannelsOfAPixelLieSideBySide) {
  Harness conv("type='conv' out=2 kernel=1 bias=false", {1, 1, 2, 2}, device());
  conv.set_param("weight", {1, 10, 100, 1000});
  EXPECT_THAT(conv.forward({1, 2, 3, 4}), ElementsAre(21, 2100, 43, 4300));
}

TEST_P(ConvTest, GroupsSeeTheirOwnChannelsOnly) {
  Harness conv("type='conv' out=2 kernel=1 groups=2 bias=false", {1, 1, 1, 4}, device());
  conv.set_param("weight", {1, 2, 3, 4});
  EXPECT_THAT(conv.forward({1, 10, 100, 1000}), ElementsAre(21, 4300));
}

TEST_P(ConvTest, RoundUpCompletesTheLastWindowWithZeros) {
  Harness down("type='conv' out=1 kernel=2 stride=2 bias=false", {1, 3, 3, 1}, device());
  Harness up("type='conv' out=1 kernel=2 stride=2 round='up' bias=false", {1, 3, 3, 1}, device());
  down.set_param("weight", {1, 1, 1, 1});
  up.set_param("weight", {1, 1, 1, 1});
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_THAT(down.forward(x), ElementsAre(12));
  EXPECT_THAT(up.forward(x), ElementsAre(12, 9, 15, 9));
}

TEST_P(ConvTest, EveryGeometryMatchesTheDefinition) {
  const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
  expect_reference("type='conv' out=5 kernel=3 pad=1", {7, 7, 3, 7, 7, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 2, device(),
                   1e-4);
  expect_reference("type='conv' out=16 kernel=11 stride=4 pad=2 bias=false",
                   {23, 23, 3, 5, 5, 16, 11, 11, 4, 4, 2, 2, 2, 2, 1}, 3, device(), 1e-4);
  expect_reference("type='conv' out=16 kernel=5 pad=2", {9, 8, 32, 9, 8, 16, 5, 5, 1, 1, 2, 2, 2, 2, 1}, 2, device(),
                   1e-4);
  expect_reference("type='conv' out=7 kernel=[1,3] stride=[2,1] pad=[0,2]",
                   {6, 5, 4, 3, 7, 7, 1, 3, 2, 1, 0, 2, 0, 2, 1}, 2, device(), 1e-4);
  expect_reference("type='conv' out=8 kernel=3 stride=2 round='up'", {6, 8, 5, 3, 4, 8, 3, 3, 2, 2, 0, 0, 1, 1, 1}, 2,
                   device(), 1e-4);
  expect_reference("type='conv' out=6 kernel=3 pad=1 groups=3", {5, 5, 9, 5, 5, 6, 3, 3, 1, 1, 1, 1, 1, 1, 3}, 2,
                   device(), 1e-4);
  expect_reference("type='conv' out=32 kernel=3 pad=1 groups=2 bias=false",
                   {6, 6, 32, 6, 6, 32, 3, 3, 1, 1, 1, 1, 1, 1, 2}, 1, device(), 1e-4);
}

// Whichever algorithm is asked for: only one has a dilation.
TEST_P(ConvTest, DilatedKernelsMatchTheDefinition) {
  for (const auto mode :
       {ConvAlgorithm::kByShape, ConvAlgorithm::kFewChannels, ConvAlgorithm::kDepthwise, ConvAlgorithm::kWinograd}) {
    const UsingConvAlgorithm algorithm(mode);
    expect_reference("type='conv' out=16 kernel=3 pad=2 dilation=2",
                     {7, 8, 16, 7, 8, 16, 3, 3, 1, 1, 2, 2, 2, 2, 1, 2, 2}, 2, device(), 1e-4);
    expect_reference("type='conv' out=5 kernel=[3,2] stride=2 pad=[1,0] dilation=[1,3] round='up'",
                     {8, 9, 3, 5, 4, 5, 3, 2, 2, 2, 1, 0, 2, 1, 1, 1, 3}, 2, device(), 1e-4);
    expect_reference("type='conv' out=6 kernel=3 pad=3 dilation=3 groups=6",
                     {5, 7, 6, 5, 7, 6, 3, 3, 1, 1, 3, 3, 3, 3, 6, 3, 3}, 2, device(), 1e-4);
  }
}

TEST_P(ConvTest, WinogradMatchesTheDefinition) {
  const UsingConvAlgorithm winograd(ConvAlgorithm::kWinograd);
  expect_reference("type='conv' out=32 kernel=3 pad=1", {13, 13, 16, 13, 13, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 2,
                   device(), 1e-4);
  expect_reference("type='conv' out=24 kernel=3 pad=1 bias=false", {9, 10, 20, 9, 10, 24, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 3,
                   device(), 1e-4);
  expect_reference("type='conv' out=19 kernel=3 pad=[0,2]", {5, 6, 11, 3, 8, 19, 3, 3, 1, 1, 0, 2, 0, 2, 1}, 2,
                   device(), 1e-4);
  expect_reference("type='conv' out=48 kernel=5 pad=2", {9, 8, 32, 9, 8, 48, 5, 5, 1, 1, 2, 2, 2, 2, 1}, 2, device(),
                   1e-4);
}

TEST_P(ConvTest, WinogradSumsManyPortionsOfTiles) {
  const UsingConvAlgorithm winograd(ConvAlgorithm::kWinograd);
  const int rows = device() == Device::kCpu ? 4 : 1;  // a GPU has no such portions, and a simulated one is slow
  expect_reference("type='conv' out=32 kernel=3 pad=1", {33, 35, 64, 33, 35, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1}, rows,
                   device(), 1e-4);
}

TEST_P(ConvTest, WinogradIsNotAskedForWhereItDoesNotExist) {
  const UsingConvAlgorithm winograd(ConvAlgorithm::kWinograd);
  expect_reference("type='conv' out=16 kernel=5 stride=2 pad=2", {9, 9, 16, 5, 5, 16, 5, 5, 2, 2, 2, 2, 2, 2, 1}, 2,
                   device(), 1e-4);
  expect_reference("type='conv' out=32 kernel=3 pad=1 groups=2", {6, 6, 32, 6, 6, 32, 3, 3, 1, 1, 1, 1, 1, 1, 2}, 2,
                   device(), 1e-4);
}

TEST_P(ConvTest, RanksOfOneProcessDoNotDisturbEachOther) {
  const UsingConvAlgorithm winograd(ConvAlgorithm::kWinograd);
  const std::string keys = "type='conv' out=16 kernel=3 pad=1";
  const Shape in{2, 9, 9, 16};
  const auto step = [&](uint64_t seed) {
    set_team_size(1);
    Harness conv(keys, in, device());
    std::vector<std::vector<float>> results;
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<float> x = values(in.elements(), seed);
      results = {conv.forward(x), conv.backward(x), conv.grad("weight")};
      conv.clear_grads();
    }
    return results;
  };
  std::vector<std::vector<float>> together[2];
  std::thread ranks[2];
  for (uint64_t rank = 0; rank < 2; ++rank) ranks[rank] = std::thread([&, rank] { together[rank] = step(rank); });
  for (std::thread& rank : ranks) rank.join();
  for (uint64_t rank = 0; rank < 2; ++rank) {
    std::vector<std::vector<float>> alone;
    std::thread([&] { alone = step(rank); }).join();
    EXPECT_EQ(together[rank], alone);
  }
}

TEST_P(ConvTest, MeasuringHappensOnceForEveryGeometryAndPass) {
  const UsingConvAlgorithm measured(ConvAlgorithm::kAuto);
  const ConvChoices& choices = ConvChoices::process();
  const std::string keys = "type='conv' out=16 kernel=3 pad=1";
  const std::vector<float> x = values(2 * 8 * 8 * 16, 1);
  Harness first(keys, {2, 8, 8, 16}, device());
  const std::vector<float> y = first.forward(x), dx = first.backward(x);
  const auto chosen = choices.exported();
  EXPECT_EQ(chosen.empty(), device() != Device::kCpu);
  Harness second(keys, {2, 8, 8, 16}, device());
  Harness fewer_rows(keys, {1, 8, 8, 16}, device());

  EXPECT_EQ(second.forward(x), y);
  EXPECT_EQ(second.backward(x), dx);
  fewer_rows.forward(values(8 * 8 * 16, 1));
  fewer_rows.backward(values(8 * 8 * 16, 1));
  EXPECT_EQ(choices.exported(), chosen);
}

TEST_P(ConvTest, TheFirstBackwardIsRightAlthoughItMeasuresInBetween) {
  const UsingConvAlgorithm measured(ConvAlgorithm::kAuto);
  ConvChoices& choices = ConvChoices::process();
  const std::string keys = "type='conv' out=64 kernel=3 pad=1";
  const ConvGeometry g{16, 16, 64, 16, 16, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1};  // Winograd is clearly the fastest here
  expect_reference(keys, g, 2, device(), 1e-4);
  auto known = choices.exported();
  EXPECT_EQ(known.empty(), device() != Device::kCpu);
  // Backward data's blocked copy of dy is in the workspace, and backward weights is still to be measured.
  for (auto it = known.begin(); it != known.end();) {
    if (it->first.find("backward data") != std::string::npos) it->second = "winograd";
    it = it->first.find("backward weights") != std::string::npos ? known.erase(it) : std::next(it);
  }
  choices.clear();
  choices.preload(known);
  expect_reference(keys, g, 2, device(), 1e-4);
}

// Ranks wait for dx; the gradients of the parameters can follow.
TEST_P(ConvTest, DxIsCompleteBeforeTheGradientOfTheWeightIsComputed) {
  const Shape in{1, 1, 2, 1};
  DevicePass pass(device(), 1);
  const auto conv = layer_from("type='conv' out=1 kernel=1 bias=false", in);
  Param& weight = *conv->params()[0];
  weight.allocate(device());
  weight.set_value(upload({3}, {1, 1, 1, 1}, Device::kCpu));
  const auto op = conv->bind(in, device());
  pass.pass().scratch = scratch_for(*op, device());
  const Tensor x = upload({1, 2}, in, device()), dy = upload({5, 7}, in, device());
  Tensor y(in, DType::kF32, device()), dx(in, DType::kF32, device());
  op->forward(pass.pass(), x, y);
  op->backward_data(pass.pass(), x, y, dy, &dx);
  pass.stream().synchronize();
  EXPECT_THAT(download(dx), ElementsAre(15, 21));
  EXPECT_TRUE(weight.grad_is_zero);
  op->backward_weights(pass.pass(), x, dy);
  pass.stream().synchronize();
  EXPECT_THAT(download(weight.grad), ElementsAre(5 + 14));
}

TEST_P(ConvTest, NaNIsSeenInEveryOutputThatUsesIt) {
  for (const auto mode : {ConvAlgorithm::kDirect, ConvAlgorithm::kWinograd}) {
    const UsingConvAlgorithm algorithm(mode);
    Harness conv("type='conv' out=16 kernel=3 pad=1", {1, 4, 4, 16}, device());
    std::vector<float> x = values(4 * 4 * 16, 1);
    x[0] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = conv.forward(x);
    for (const size_t pixel : {0, 1, 4, 5})
      for (size_t channel = 0; channel < 16; ++channel) EXPECT_TRUE(std::isnan(y[pixel * 16 + channel]));
  }
}

TEST_P(ConvTest, NewWeightsAreUsedInBothDirections) {
  Harness conv("type='conv' out=1 kernel=1 bias=false", {1, 1, 1, 1}, device());
  conv.set_param("weight", {2});
  EXPECT_THAT(conv.forward({5}), ElementsAre(10));
  EXPECT_THAT(conv.backward({1}), ElementsAre(2));
  conv.set_param("weight", {3});
  EXPECT_THAT(conv.forward({5}), ElementsAre(15));
  EXPECT_THAT(conv.backward({1}), ElementsAre(3));
}

// Left to itself the layer might choose one algorithm for one team and the other for the next.
TEST_P(ConvTest, TheTeamMayChangeBetweenPasses) {
  for (const auto mode : {ConvAlgorithm::kDirect, ConvAlgorithm::kWinograd}) {
    const UsingConvAlgorithm algorithm(mode);
    const int team = team_size();
    const std::string keys = "type='conv' out=16 kernel=3 pad=1";
    const std::vector<float> x = values(4 * 8 * 8 * 16, 1);
    Harness conv(keys, {4, 8, 8, 16}, device()), other(keys, {4, 8, 8, 16}, device());
    const std::vector<float> y = conv.forward(x), dx = conv.backward(x);
    set_team_size(team + 1);
    const std::vector<double> wanted(y.begin(), y.end()), wanted_dx(dx.begin(), dx.end());
    EXPECT_NEAR(relative_error(conv.forward(x), wanted), 0, 1e-4);
    set_team_size(team);
    EXPECT_NEAR(relative_error(conv.backward(x), wanted_dx), 0, 1e-4);
  }
}

TEST_P(ConvTest, KeepsTheLayerContract) {
  for (const auto mode :
       {ConvAlgorithm::kDirect, ConvAlgorithm::kFewChannels, ConvAlgorithm::kDepthwise, ConvAlgorithm::kWinograd}) {
    const UsingConvAlgorithm algorithm(mode);
    check_layer("type='conv' out=8 kernel=3 pad=1", {2, 7, 7, 3}, device());
    check_layer("type='conv' out=4 kernel=[2,3] stride=2 round='up' bias=false", {2, 6, 7, 3}, device());
    check_layer("type='conv' out=6 kernel=3 pad=1 groups=2", {2, 5, 5, 4}, device());
    check_layer("type='conv' out=6 kernel=3 stride=2 pad=1 groups=6", {2, 5, 9, 6}, device());
    check_layer("type='conv' out=16 kernel=3 pad=1", {2, 6, 6, 16}, device());
    check_layer("type='conv' out=6 kernel=3 pad=[2,1] dilation=2", {2, 5, 6, 4}, device());
  }
}

TEST(Conv, ParametersSpeakTheFileOrderOfPyTorch) {
  const auto conv =
      layer_from("name='conv1' type='conv' out=6 kernel=[3,5] groups=2 lr=0.5 bias={lr=2,decay=0}", {1, 8, 8, 4});
  ASSERT_EQ(conv->params().size(), 2u);
  const Param &weight = *conv->params()[0], &bias = *conv->params()[1];
  EXPECT_EQ(weight.name, "conv1.weight");
  EXPECT_EQ(weight.full_shape, (Shape{6, 3, 5, 2}));
  EXPECT_EQ(weight.file_shape, (Shape{6, 2, 3, 5}));
  EXPECT_EQ(weight.part, (Slice{0, 6}));
  EXPECT_EQ(weight.fan_in, 3 * 5 * 2);
  EXPECT_EQ(weight.fan_out, 3 * 5 * 3);
  EXPECT_EQ(weight.init.type, Initializer::Type::kXavier);
  EXPECT_EQ(weight.lr_mult, 0.5);
  EXPECT_EQ(bias.name, "conv1.bias");
  EXPECT_EQ(bias.full_shape, (Shape{6}));
  EXPECT_EQ(bias.lr_mult, 2);
  EXPECT_EQ(bias.decay_mult, 0);
  EXPECT_EQ(bias.init.type, Initializer::Type::kConstant);
}

TEST(Conv, CountsAMultiplyAddAsTwo) {
  const auto conv = layer_from("type='conv' out=6 kernel=3 pad=1 groups=2", {1, 8, 8, 4});
  EXPECT_EQ(conv->flops({5, 8, 8, 4}), 2.0 * 5 * 8 * 8 * 6 * 3 * 3 * 2);
}

TEST(Conv, RefusesImpossibleGeometry) {
  const auto making = [](const std::string& keys) {
    return [=] { layer_from("name='conv3' type='conv' " + keys, {1, 5, 6, 4}); };
  };
  EXPECT_THAT(message_of(making("out=4 kernel=8 pad=1")),
              AllOf(HasSubstr("conv3"), HasSubstr("8x8 is larger than the image of 5x6")));
  EXPECT_THAT(
      message_of(making("out=4 kernel=3 dilation=[4,1] pad=1")),
      HasSubstr("the kernel of 3x3, which covers 9x3 pixels with its dilation, is larger than the image of 5x6"));
  EXPECT_THAT(message_of(making("out=4 kernel=3 dilation=0")), HasSubstr("dilation"));
  EXPECT_THAT(message_of(making("out=4 kernel=3 groups=3")), HasSubstr("the input has 4 channels, which 3"));
  EXPECT_THAT(message_of(making("out=3 kernel=3 groups=2")), HasSubstr("'out' is 3, which 2"));
  EXPECT_THAT(message_of(making("out=4 kernel=3 stride=0")), HasSubstr("stride"));
  EXPECT_THAT(message_of(making("out=4 kernel=[3,0]")), HasSubstr("'kernel' is 0, wanted 1 to 32768"));
  EXPECT_THAT(message_of(making("out=4 kernel=[3,3,3]")), HasSubstr("'kernel' has 3 numbers"));
  EXPECT_THAT(message_of(making("out=4 kernel=3 pads=1")), HasSubstr("did you mean 'pad'?"));
  EXPECT_THAT(message_of(making("out=4 kernel=3 bias={rate=1}")), HasSubstr("rate"));
  EXPECT_THAT(message_of([] {
                layer_from("type='conv' out=4 kernel=3", {1, 20});
              }),
              HasSubstr("before the first dense layer"));
}

}  // namespace
}  // namespace owt::conv_test

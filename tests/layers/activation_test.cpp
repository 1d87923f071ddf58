#include "layers/activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/simd_exp.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::activation_test {
namespace {

using testing::HasSubstr;

using Values = std::vector<float>;

using ActivationTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, ActivationTest, testing::ValuesIn(devices()), device_name);

// PyTorch 2.15's results for x in f64, and the gradients of their sum:
// x = torch.tensor(kX, dtype=torch.float64, requires_grad=True); y = torch.nn.GELU()(x); y.sum().backward()
const Values kX = {-30, -8, -3, -1, -0.25, -1e-3f, 0.5, 1, 2.5, 6.5, 30};
struct Figures {
  const char* keys;
  Values y, dx;
};
const Figures kFigures[] = {
    {"kind='sigmoid'",
     {9.35762297e-14f, 0.00033535013f, 0.0474258732f, 0.268941421f, 0.437823499f, 0.49975f, 0.622459331f, 0.731058579f,
      0.92414182f, 0.998498818f, 1},
     {9.35762297e-14f, 0.000335237671f, 0.0451766597f, 0.196611933f, 0.246134083f, 0.249999938f, 0.235003712f,
      0.196611933f, 0.0701037165f, 0.00149892871f, 9.34807787e-14f}},
    {"kind='tanh'",
     {-1, -0.999999775f, -0.995054754f, -0.761594156f, -0.244918662f, -0.000999999667f, 0.462117157f, 0.761594156f,
      0.986614298f, 0.999995479f, 1},
     {0, 4.50140598e-07f, 0.00986603717f, 0.419974342f, 0.940014849f, 0.999999f, 0.786447733f, 0.419974342f,
      0.0265922267f, 9.04127676e-06f, 0}},
    {"kind='gelu'",
     {0, -4.88498131e-15f, -0.00404969409f, -0.158655254f, -0.100323419f, -0.000499601058f, 0.345731231f, 0.841344746f,
      2.48447584f, 6.5f, 30},
     {0, -3.9807546e-14f, -0.0119456472f, -0.0833154706f, 0.304626645f, 0.499202116f, 0.867495125f, 1.08331547f,
      1.03761109f, 1, 1}},
    {"kind='gelu' approximate='tanh'",
     {0, 0, -0.00363739208f, -0.158808009f, -0.100324649f, -0.000499601058f, 0.34571401f, 0.841191991f, 2.48491573f,
      6.5f, 30},
     {0, 0, -0.0115841666f, -0.0829640838f, 0.304645905f, 0.499202116f, 0.867369904f, 1.08296408f, 1.03795158f, 1, 1}},
    {"kind='silu'",
     {-2.80728689e-12f, -0.00268280104f, -0.14227762f, -0.268941421f, -0.109455875f, -0.00049975f, 0.311229666f,
      0.731058579f, 2.31035455f, 6.49024232f, 30},
     {-2.71371066e-12f, -0.00234655124f, -0.088104106f, 0.0723294881f, 0.376289978f, 0.4995f, 0.739961187f,
      0.927670512f, 1.09940111f, 1.00824185f, 1}},
    {"kind='leaky'",
     {-0.3f, -0.08f, -0.03f, -0.01f, -0.0025f, -1e-05f, 0.5f, 1, 2.5f, 6.5f, 30},
     {0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 1, 1, 1, 1, 1}},
    {"kind='relu6'", {0, 0, 0, 0, 0, 0, 0.5f, 1, 2.5f, 6, 6}, {0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0}},
    {"kind='softplus'",
     {9.35762297e-14f, 0.000335406373f, 0.0485873516f, 0.313261688f, 0.57593942f, 0.692647306f, 0.974076984f,
      1.31326169f, 2.57888973f, 6.50150231f, 30},
     {9.35762297e-14f, 0.00033535013f, 0.0474258732f, 0.268941421f, 0.437823499f, 0.49975f, 0.622459331f, 0.731058579f,
      0.92414182f, 0.998498818f, 1}},
    {"kind='abs'", {30, 8, 3, 1, 0.25f, 0.001f, 0.5f, 1, 2.5f, 6.5f, 30}, {-1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1}},
    {"kind='square'",
     {900, 64, 9, 1, 0.0625f, 1e-06f, 0.25f, 1, 6.25f, 42.25f, 900},
     {-60, -16, -6, -2, -0.5f, -0.002f, 1, 2, 5, 13, 60}},
    {"kind='hard_sigmoid'",
     {0, 0, 0, 0.333333333f, 0.458333333f, 0.499833333f, 0.583333333f, 0.666666667f, 0.916666667f, 1, 1},
     {0, 0, 0, 0.166666667f, 0.166666667f, 0.166666667f, 0.166666667f, 0.166666667f, 0.166666667f, 0, 0}},
    {"kind='hard_swish'",
     {0, 0, 0, -0.333333333f, -0.114583333f, -0.000499833333f, 0.291666667f, 0.666666667f, 2.29166667f, 6.5f, 30},
     {0, 0, 0, 0.166666667f, 0.416666667f, 0.499666667f, 0.666666667f, 0.833333333f, 1.33333333f, 1, 1}},
};

TEST_P(ActivationTest, GivesPyTorchsFigures) {
  for (const Figures& figures : kFigures) {
    SCOPED_TRACE(figures.keys);
    Harness layer(std::string("type='activation' ") + figures.keys, {1, std::ssize(kX)}, device());
    const Values y = layer.forward(kX), dx = layer.backward(Values(kX.size(), 1));
    const auto bound = [](float wanted) { return std::min(3e-6f * (1 + std::abs(wanted)), 1e-5f); };
    for (size_t i = 0; i < kX.size(); ++i) {
      EXPECT_NEAR(y[i], figures.y[i], bound(figures.y[i])) << "x = " << kX[i];
      EXPECT_NEAR(dx[i], figures.dx[i], bound(figures.dx[i])) << "x = " << kX[i];
    }
  }
}

// Small results keep their digits if the formula allows it; bf16 represents such values too.
TEST_P(ActivationTest, SmallResultsAreRelativelyExact) {
  for (const char* kind : {"sigmoid", "softplus"}) {
    Harness layer(std::string("type='activation' kind='") + kind + "'", {1, 2}, device());
    const Values y = layer.forward({-20, -60}), dx = layer.backward({1, 1});
    for (const Values& found : {y, dx}) {
      EXPECT_NEAR(found[0] / std::exp(-20.0), 1, 1e-5) << kind;
      EXPECT_NEAR(found[1] / std::exp(-60.0), 1, 1e-5) << kind;
    }
  }
  Harness tanh("type='activation' kind='tanh'", {1, 2}, device());
  EXPECT_THAT(tanh.forward({1e-6f, -1e-20f}), testing::ElementsAre(1e-6f, -1e-20f));
}

TEST_P(ActivationTest, KeepsTheLayerContract) {
  for (const Figures& figures : kFigures) {
    const std::string keys = std::string("type='activation' ") + figures.keys;
    // In-place activations compute gradients from y, which is rounded in bf16.
    // Kinks are further away than the differences: hard_swish has them at -3 and 3.
    const LayerCheck check{.rounding = 0x1p-4, .input_range = 2.9};
    check_layer(keys, {3, 4, 5, 6}, device(), check);
    check_layer(keys, {6, 10}, device(), check);
    check_layer(keys, {5, 8000}, device(), {.rounding = 0x1p-4, .samples = 0});
  }
  check_layer("type='activation' kind='leaky' slope=0", {6, 10}, device());
}

TEST(Activation, WorksInPlaceWhereTheOutputTellsTheGradient) {
  for (const Figures& figures : kFigures) {
    const std::string keys = figures.keys;
    bool needs_x = false;
    for (const char* kind : {"gelu", "silu", "abs", "square", "hard_swish"})
      needs_x |= keys.find(kind) != std::string::npos;
    EXPECT_EQ(layer_from("type='activation' " + keys, {1, 4})->in_place().has_value(), !needs_x) << keys;
  }
}

TEST_P(ActivationTest, NaNIsNotHidden) {
  for (const Figures& figures : kFigures) {
    Harness layer(std::string("type='activation' ") + figures.keys, {1, 20}, device());
    Values x(20, 1);
    x[3] = x[19] = std::numeric_limits<float>::quiet_NaN();
    const Values y = layer.forward(x);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), std::isnan(x[i])) << figures.keys << " at " << i;
  }
}

TEST(Activation, HasNoSuchKindOrKey) {
  const auto message = [](const std::string& keys) {
    return message_of([&] { layer_from("type='activation' " + keys, {1, 4}); });
  };
  EXPECT_THAT(message("kind='sigmoyd'"), HasSubstr("did you mean 'sigmoid'?"));
  EXPECT_THAT(message("kind='tanh' slope=0.1"), HasSubstr("no key 'slope'"));
  EXPECT_THAT(message("kind='leaky' slope=-0.1"), HasSubstr("slope"));
  EXPECT_THAT(message("kind='gelu' approximate='erf'"), HasSubstr("'erf'"));
}

TEST(Exponential, Less1KeepsItsDigitsNear0) {
  double worst = 0;
  for (double x = 1e-30; x < 80; x *= 1.001)
    for (const float at : {static_cast<float>(x), static_cast<float>(-x)})
      worst = std::max(worst, std::abs(exponential_less_one(all_lanes(at))[0] / std::expm1(double{at}) - 1));
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(exponential_less_one(Vector{})[0], 0);
  EXPECT_EQ(exponential_less_one(all_lanes(-1000))[0], -1);
  EXPECT_TRUE(std::isnan(exponential_less_one(all_lanes(std::numeric_limits<float>::quiet_NaN()))[0]));
}

TEST(Exponential, IsThatOfTheStandardLibrary) {
  double worst = 0;
  for (int i = -87'000; i <= 88'000; i += 7) {
    const auto x = static_cast<float>(i) / 1000;
    worst = std::max(worst, std::abs(exponential(all_lanes(x))[0] / std::exp(double{x}) - 1));
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_LT(exponential(all_lanes(-1000))[0], 1.3e-38f);
  EXPECT_GT(exponential(all_lanes(1000))[0], 2e38f);
  EXPECT_TRUE(std::isnan(exponential(all_lanes(std::numeric_limits<float>::quiet_NaN()))[0]));
}

}  // namespace
}  // namespace owt::activation_test

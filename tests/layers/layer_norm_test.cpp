#include "layers/layer_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::layer_norm_test {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

using LayerNormTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, LayerNormTest, testing::ValuesIn(devices()), device_name);

TEST_P(LayerNormTest, KeepsTheLayerContract) {
  check_layer("type='layer_norm'", {3, 4, 5, 6}, device());
  check_layer("type='layer_norm' eps=0.5", {6, 10}, device());
  check_layer("type='layer_norm'", {2, 3, 3, 33}, device());
  check_layer("type='layer_norm'", {2, 9, 8, 40}, device(), {.samples = 30});
  check_layer("type='layer_norm'", {40, 520}, device(), {.exactness = 3e-4, .samples = 20});  // in several chunks
}

// The mean is 2, the variance 1 and the standard deviation 2, so n = (-1/2, 1/2). With g = dy * weight = (2, 0), the
// means of g and of g * n are 1 and -1/2: dx = (g - 1 + n / 2) / 2.
TEST_P(LayerNormTest, IsTheFormulaOfItsHeader) {
  Harness norm("type='layer_norm' eps=3", {1, 2}, device());
  norm.set_param("weight", {2, 4});
  norm.set_param("bias", {10, 20});
  EXPECT_THAT(norm.forward({1, 3}), ElementsAre(9, 22));
  EXPECT_THAT(norm.backward({1, 0}), ElementsAre(0.375f, -0.375f));
  EXPECT_THAT(norm.grad("weight"), ElementsAre(-0.5f, 0));
  EXPECT_THAT(norm.grad("bias"), ElementsAre(1, 0));
}

// PyTorch 2.15: x = torch.tensor([[1., -2, 4], [0.5, 0.25, 1]]); w = torch.tensor([1., 2, -1]);
// y = F.layer_norm(x, (3,), w, torch.tensor([0., 1, 2]), 1e-6); y.backward(torch.tensor([[1., 2, 3], [-1, 0, 2]]))
TEST_P(LayerNormTest, GivesPyTorchsFigures) {
  Harness norm("type='layer_norm' eps=1e-6", {1, 1, 2, 3}, device());
  norm.set_param("weight", {1, 2, -1});
  norm.set_param("bias", {0, 1, 2});
  const auto near = [](const std::vector<float>& wanted) { return Pointwise(FloatNear(1e-5f), wanted); };
  EXPECT_THAT(norm.forward({1, -2, 4, 0.5f, 0.25f, 1}),
              near({0, -1.44949f, 0.7752552f, -0.2672599f, -1.138079f, 0.6637007f}));
  EXPECT_THAT(norm.backward({1, 2, 3, -1, 0, 2}),
              near({0.1360828f, -0.06804114f, -0.06804161f, -0.6872326f, 0.458188f, 0.2290445f}));
  EXPECT_THAT(norm.grad("weight"), near({0.2672599f, -2.44949f, 6.346833f}));
  EXPECT_THAT(norm.grad("bias"), near({0, 2, 5}));
}

// In f32 the sum of squares less the square of the sum would have no digit of the variance.
TEST_P(LayerNormTest, KeepsASmallVarianceBesideALargeMean) {
  Harness norm("type='layer_norm' eps=1e-12", {1, 64}, device());
  std::vector<float> x(64, 4096.0f);
  for (size_t i = 0; i < 32; ++i) x[2 * i] += 0.25f;
  const std::vector<float> y = norm.forward(x);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], i % 2 == 0 ? 1 : -1, 1e-4) << i;
}

TEST_P(LayerNormTest, NaNStaysInItsRow) {
  Harness norm("type='layer_norm'", {2, 5}, device());
  std::vector<float> x = distinct_values(10, 2, 3);
  x[1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = norm.forward(x);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i < 5) << i;
}

TEST(LayerNorm, SaysWhatIsWrong) {
  EXPECT_THAT(message_of([] { layer_from("type='layer_norm' eps=0", {1, 4}); }), HasSubstr("eps"));
  EXPECT_THAT(message_of([] { layer_from("type='layer_norm' rows=3", {1, 4}); }), HasSubstr("no key 'rows'"));
  EXPECT_THAT(layer_from("type='layer_norm'", {1, 4})->why_not_canonical(), HasSubstr("not canonical sums yet"));
}

}  // namespace
}  // namespace owt::layer_norm_test

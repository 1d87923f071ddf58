// A convolution that masks and sums its dx for the convolution before it (layers/base/masking_op.h) gives the gradients
// of separate passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/system/check.h"
#include "src/system/plan_cache.h"
#include "tests/support/harness.h"
#include "tests/support/nets.h"

namespace owt::masking_test {
namespace {

using Masking = DeviceTest;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Masking);
INSTANTIATE_TEST_SUITE_P(Gpus, Masking, ::testing::ValuesIn(gpu_devices()), device_name);

constexpr int64_t kRows = 3;

// Multiples of 1/8, so that sums of a few products are exact in every order.
std::vector<float> eighths(int64_t count, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((i * 31 + i / 7 + seed * 17) % 23 - 11) / 8);
  return values;
}

struct Gradients {
  std::vector<float> dx;
  std::vector<std::vector<float>> of_params;
};

// A net whose convolutions mask for the ones before them or not, as the test says. The choice is made by measuring;
// the test replaces its result.
class MaskedNet {
 public:
  MaskedNet(const std::vector<std::string>& layers, const Shape& in, const Compute& on, const std::string& frozen = "")
      : on_(on), pass_(on.device, kRows), net_(net_of(layers, in)) {
    int seed = 3;
    for (Param* param : net_.params()) {
      if (param->name == frozen) param->freeze();
      param->value = param->grad = param->copy16 = Tensor();
      param->allocate(on);
      param->set_value(upload(eighths(param->shape().elements(), ++seed), param->shape(), Device::kCpu));
    }
  }

  // The sums of the gradients of `passes` backward passes. by: "cuDNN", or "own 0" for our own kernels.
  Gradients gradients(const char* choice, int passes = 1, const char* by = "cuDNN") {
    Tape(net_, kRows, on_, nullptr);  // measures
    for (const auto& [key, text] : PlanCache::process().known()) {
      const auto holds = [&](const char* words) { return key.find(words) != std::string::npos; };
      if (holds("mask of dx, ")) PlanCache::process().store_for_this_process(key, choice);
      if (holds("own convolution or cuDNN, ")) PlanCache::process().store_for_this_process(key, by);
    }
    Tape tape(net_, kRows, on_, nullptr);
    const DType type = activation_type(on_.precision);
    const Shape x_shape = net_.in().batch_of(kRows), y_shape = net_.out().batch_of(kRows);
    const Tensor x = upload(eighths(x_shape.elements(), 1), x_shape, on_.device, type);
    Tensor dx(x_shape, type, on_.device);
    fill(dx, std::numeric_limits<float>::quiet_NaN());
    for (Param* param : net_.params()) {
      param->grad_is_zero = true;
      if (param->grad.defined()) fill(param->grad, std::numeric_limits<float>::quiet_NaN());
    }
    for (int i = 0; i < passes; ++i) {
      tape.forward(pass_.pass(), x);
      const Tensor dy = upload(eighths(y_shape.elements(), 2), y_shape, on_.device, type);
      tape.backward(pass_.pass(), x, dy, &dx);
    }
    pass_.stream().synchronize();
    Gradients all{download(dx), {}};
    for (const Param* param : net_.params())
      all.of_params.push_back(param->grad.defined() ? download(param->grad) : std::vector<float>());
    return all;
  }

  Param& param(const std::string& name) {
    for (Param* each : net_.params())
      if (each->name == name) return *each;
    fail("no parameter ", name);
  }
  Net& net() { return net_; }

 private:
  Compute on_;
  DevicePass pass_;
  Net net_;
};

// All gradients must have the same bits, except gradients of biases: their terms may be added before they are rounded.
void expect_equal(MaskedNet& net, const Gradients& found, const Gradients& wanted, double tolerance) {
  EXPECT_EQ(found.dx, wanted.dx);
  for (size_t p = 0; p < wanted.of_params.size(); ++p) {
    const Param& param = *net.net().params()[p];
    SCOPED_TRACE(param.name);
    if (!param.is_bias()) {
      EXPECT_EQ(found.of_params[p], wanted.of_params[p]);
      continue;
    }
    float largest = 0;
    for (const float value : wanted.of_params[p]) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < wanted.of_params[p].size(); ++i)
      EXPECT_NEAR(found.of_params[p][i], wanted.of_params[p][i], tolerance * static_cast<double>(largest)) << i;
  }
}

std::vector<std::string> two_convs(const std::string& first, const std::string& second) {
  return {concat("name='a' type='conv' ", first), "name='relu_a' type='relu'", concat("name='b' type='conv' ", second),
          "name='relu_b' type='relu'"};
}

const char* const kThree = "out=8 kernel=3 pad=1";

TEST_P(Masking, GivesTheGradientsOfSeparatePasses) {
  const std::vector<std::vector<std::string>> nets{
      two_convs(kThree, kThree),
      two_convs(kThree, "out=16 kernel=1"),
      two_convs(kThree, "out=8 kernel=3 stride=2 pad=1"),
      two_convs(kThree, "out=8 kernel=3 stride=3"),  // windows that leave out the last pixels
      two_convs(kThree, "out=8 kernel=3 pad=1 groups=2"),
      two_convs("out=5 kernel=3", "out=7 kernel=[2,3] pad=[1,0]"),
      two_convs("out=3 kernel=3 pad=1", kThree),  // packed channels
      {"name='a' type='conv' out=8 kernel=3 pad=1", "name='relu_a' type='relu'",
       "name='b' type='conv' out=8 kernel=3 pad=1", "name='relu_b' type='relu'",
       "name='c' type='conv' out=8 kernel=3 pad=1 bias=false"},
      {"name='a' type='conv' out=8 kernel=3 pad=1", "name='relu_a' type='relu'",
       "name='b' type='conv' out=8 kernel=3 pad=1", "name='relu_b' type='relu'",
       "name='pool' type='max_pool' kernel=2"},
      {"name='a' type='conv' out=8 kernel=3 pad=1", "name='relu_a' type='relu'",
       "name='b' type='conv' out=8 kernel=3 pad=1", "name='relu_b' type='relu'",
       "name='pool' type='avg_pool' kernel=2"},
      {"name='a' type='conv' out=8 kernel=3 pad=1 bias=false", "name='relu_a' type='relu'",
       "name='b' type='conv' out=8 kernel=3 pad=1"}};
  for (const auto& [precision, tolerance] : {std::pair(Precision::kBf16, 1.0 / 128), {Precision::kFp32, 1e-5}})
    for (const std::vector<std::string>& layers : nets) {
      SCOPED_TRACE(concat(name_of(precision), ", ", layers[0], ", ", layers[2]));
      MaskedNet net(layers, {7, 8, 4}, {device(), precision});
      const Gradients apart = net.gradients("apart");
      expect_equal(net, net.gradients("fused"), apart, tolerance);
      const Gradients by_own = net.gradients("apart", 1, "own 0");
      expect_equal(net, net.gradients("fused", 1, "own 0"), by_own, tolerance);  // our own kernels do not mask
    }
}

TEST_P(Masking, AddsToTheGradientsOfTheBias) {
  MaskedNet net(two_convs(kThree, kThree), {6, 5, 8}, {device(), Precision::kBf16});
  const Gradients once = net.gradients("fused");
  const Gradients thrice = net.gradients("fused", 3);
  EXPECT_EQ(thrice.dx, once.dx);
  for (size_t p = 0; p < once.of_params.size(); ++p)
    for (size_t i = 0; i < once.of_params[p].size(); ++i)
      EXPECT_FLOAT_EQ(thrice.of_params[p][i], 3 * once.of_params[p][i]) << p << ' ' << i;
}

TEST_P(Masking, LeavesAFrozenBiasAlone) {
  MaskedNet net(two_convs(kThree, kThree), {6, 5, 8}, {device(), Precision::kBf16}, "a.bias");
  const Gradients apart = net.gradients("apart"), fused = net.gradients("fused");
  EXPECT_FALSE(net.param("a.bias").grad.defined());
  expect_equal(net, fused, apart, 0);
}

// A residual block masks only for another block.
TEST_P(Masking, LeavesTheBiasToAConvolutionBeforeABlock) {
  const std::vector<std::string> layers{
      "name='a' type='conv' out=8 kernel=1", "name='relu_a' type='relu'",
      "name='block' type='residual' body=[{name='t',type='conv',out=8,kernel=1,bias=false}]",
      "name='b' type='conv' out=8 kernel=1"};
  const Gradients cpu = MaskedNet(layers, {6, 5, 8}, {Device::kCpu, Precision::kFp32}).gradients("fused");
  MaskedNet net(layers, {6, 5, 8}, {device(), Precision::kFp32});
  expect_equal(net, net.gradients("fused"), cpu, 1e-5);
}

TEST_P(Masking, ShowsANaN) {
  MaskedNet net(two_convs("out=8 kernel=1", "out=8 kernel=1"), {2, 2, 8}, {device(), Precision::kBf16});
  net.param("a.bias").set_value(upload(std::vector<float>(8, 100), {8}, Device::kCpu));  // all pixels are positive
  std::vector<float> weights(64, 0);
  weights[3] = std::numeric_limits<float>::quiet_NaN();  // from channel 3 to channel 0
  net.param("b.weight").set_value(upload(weights, {8, 1, 1, 8}, Device::kCpu));
  net.param("b.bias").set_value(upload(std::vector<float>(8, 1), {8}, Device::kCpu));
  const Gradients fused = net.gradients("fused");
  for (const float value : fused.dx) EXPECT_TRUE(std::isnan(value));
  const std::vector<float>& bias = fused.of_params[1];
  for (size_t c = 0; c < bias.size(); ++c) EXPECT_EQ(std::isnan(bias[c]), c == 3) << c;
}

}  // namespace
}  // namespace owt::masking_test

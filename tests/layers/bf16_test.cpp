// Properties of layers with bf16 activations that check_layer does not cover. Layers that select or scale give the same
// bits as the CPU with f32 on the same, already rounded, inputs. On a GPU, channels that fill packs and channels that
// do not use different code, and gradients may be bf16 too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layers/loss/softmax_loss.h"
#include "src/core/bf16.h"
#include "tests/support/check_layer.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"

namespace owt::bf16_test {
namespace {

using testing::Pointwise;

using Values = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Bf16Test = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, Bf16Test, testing::ValuesIn(devices()), device_name);
class Bf16OnGpu : public Bf16Test {};
INSTANTIATE_TEST_SUITE_P(Gpus, Bf16OnGpu, testing::ValuesIn(gpu_devices()), device_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bf16OnGpu);

Values rounded(Values values) {
  for (float& value : values) value = from_bf16(to_bf16(value));
  return values;
}
// A rounded result may differ by one step of bf16, which is at most 2^-8 of the value.
MATCHER(Nearly, "") {
  const auto [found, wanted] = arg;
  return std::abs(found - wanted) <= 0x1p-7f * std::abs(wanted) + 1e-6f;
}
MATCHER(SameOrNaN, "") {
  const auto [found, wanted] = arg;
  return found == wanted || (std::isnan(found) && std::isnan(wanted));
}

struct Results {
  Values y, y_in_evaluation, dx;
};

Results run(const std::string& keys, const Shape& in, const Compute& on, const Values& x) {
  Harness layer(keys, in, on);
  for (size_t i = 0; i < layer.rows().size(); ++i) layer.rows()[i] = 3 * static_cast<int64_t>(i) + 1;
  layer.pass().step = 5;
  Results results;
  results.y_in_evaluation = layer.evaluate(x);
  results.y = layer.forward(x);
  results.dx = layer.backward(rounded(distinct_values(layer.out_shape().elements(), 1, 12)));
  return results;
}

void expect_rounded(const std::string& keys, const Shape& in, Device device, const Values& x) {
  SCOPED_TRACE(keys + " on " + in.str());
  const Results found = run(keys, in, {device, Precision::kBf16}, x), wanted = run(keys, in, Device::kCpu, x);
  EXPECT_THAT(found.y, Pointwise(SameOrNaN(), rounded(wanted.y)));
  EXPECT_THAT(found.y_in_evaluation, Pointwise(SameOrNaN(), rounded(wanted.y_in_evaluation)));
  EXPECT_THAT(found.dx, Pointwise(SameOrNaN(), rounded(wanted.dx)));
}
void expect_rounded(const std::string& keys, const Shape& in, Device device) {
  expect_rounded(keys, in, device, rounded(distinct_values(in.elements(), 3, 11)));
}

const char* const kWindows[] = {"kernel=2",
                                "kernel=2 stride=2 pad=1 round='up'",
                                "kernel=3 stride=2",
                                "kernel=3 stride=2 pad=1 round='up'",
                                "kernel=3 stride=1 pad=1",
                                "kernel=2 stride=3",
                                "kernel=5 stride=2 pad=2"};

TEST_P(Bf16Test, ReluChoosesAsTheCpuDoes) {
  for (const Shape& in : {Shape{3, 4, 5, 8}, {5, 7}, {1, 1}}) expect_rounded("type='relu'", in, device());
}

TEST_P(Bf16Test, MaxPoolChoosesAsTheCpuDoes) {
  for (const char* window : kWindows)
    for (const int64_t channels : {5, 8, 24, 33, 64})
      expect_rounded(std::string("type='max_pool' ") + window, {2, 7, 8, channels}, device());
  expect_rounded("type='max_pool' kernel=17 stride=2", {1, 18, 19, 8}, device());
}

TEST_P(Bf16Test, MaxPoolChoosesAsTheCpuDoesAmongEqualAndSpecialValues) {
  const Values few = {1, 1, 2, 2, -0.0f, 0, -kInfinity, -kInfinity, -kInfinity, kNaN};
  for (const char* window : kWindows)
    for (const int64_t channels : {1, 3, 5, 8, 17, 33, 64}) {
      const Shape in{2, 9, 8, channels};
      Values x;
      for (int64_t i = 0; i < in.elements(); ++i) x.push_back(few[static_cast<size_t>((i * i + i / 7) % 10)]);
      expect_rounded(std::string("type='max_pool' ") + window, in, device(), x);
    }
}

TEST_P(Bf16Test, AveragesAreThoseOfTheCpu) {
  for (const int64_t channels : {5, 16, 300}) {
    for (const char* window : kWindows)
      check_layer(std::string("type='avg_pool' ") + window, {2, 7, 8, channels}, device());
    check_layer("type='global_avg_pool'", {3, 7, 6, channels}, device());
  }
}

TEST_P(Bf16Test, ResponseNormalisationIsThatOfTheCpu) {
  for (const char* keys : {"", "alpha=1 size=3 beta=0.5", "alpha=2 beta=1", "alpha=1 beta=0.6", "alpha=1 size=4"})
    for (const int64_t channels : {5, 8, 24})
      check_layer(std::string("type='lrn' ") + keys, {2, 3, 4, channels}, device());
}

TEST_P(Bf16Test, DropoutDropsWhatTheCpuDrops) {
  for (const Shape& in : {Shape{4, 64}, {3, 37}, {2, 3, 3, 8}, {2, 2050}})
    expect_rounded("type='dropout' rate=0.3", in, device());
}

// The gradient of the weights after one pass; `type`: Param::grad_type of the weights.
Values weight_gradient(const std::string& keys, const Shape& in, Device device, DType type) {
  std::unique_ptr<Layer> layer = layer_from(keys, in);
  layer->params()[0]->grad_type = type;
  Harness harness(std::move(layer), in, {device, Precision::kBf16});
  harness.forward(rounded(distinct_values(in.elements(), 3, 11)));
  harness.backward(rounded(distinct_values(harness.out_shape().elements(), 1, 12)));
  EXPECT_EQ(harness.param("weight").grad.dtype(), type);
  return harness.grad("weight");
}

// Convolutions of four channels at most may be packed.
TEST_P(Bf16OnGpu, WeightsHaveTheirGradientsInBf16WhereTheyAreAskedFor) {
  const std::pair<const char*, Shape> layers[] = {{"type='dense' out=8", {5, 24}},
                                                  {"type='dense' out=3", {4, 7}},
                                                  {"type='conv' out=8 kernel=3 pad=1", {3, 6, 7, 16}},
                                                  {"type='conv' out=8 kernel=3 groups=2", {2, 6, 7, 16}},
                                                  {"type='conv' out=8 kernel=5 stride=2 pad=2", {2, 13, 12, 3}}};
  for (const auto& [keys, in] : layers) {
    SCOPED_TRACE(keys);
    const Values sums = weight_gradient(keys, in, device(), DType::kF32);
    EXPECT_THAT(weight_gradient(keys, in, device(), DType::kBF16), Pointwise(Nearly(), rounded(sums)));
  }
}

TEST_P(Bf16OnGpu, ASecondContributionToAGradientInBf16IsAnError) {
  for (const char* keys : {"type='dense' out=8", "type='conv' out=8 kernel=1"}) {
    const Shape in = std::string(keys).find("conv") == std::string::npos ? Shape{2, 8} : Shape{1, 2, 2, 8};
    std::unique_ptr<Layer> layer = layer_from(keys, in);
    layer->params()[0]->grad_type = DType::kBF16;
    Harness harness(std::move(layer), in, {device(), Precision::kBf16});
    const Values x(static_cast<size_t>(in.elements()), 1), dy(static_cast<size_t>(harness.out_shape().elements()), 1);
    harness.forward(x);
    harness.backward(dy);
    EXPECT_THAT(message_of([&] { harness.backward(dy); }), testing::HasSubstr("sums of gradients are f32")) << keys;
  }
}

struct Loss {
  Values sums, dlogits;
};
Loss loss_of(const Values& logits, int classes, const std::vector<int32_t>& labels, const Compute& on) {
  const auto rows = static_cast<int64_t>(labels.size());
  const DType dtype = activation_type(on.precision);
  DevicePass pass(on.device, rows);
  const Tensor x = upload(logits, {rows, classes}, on.device, dtype), y = upload_labels(labels, on.device);
  Tensor dlogits({rows, classes}, dtype, on.device), sums({kLossSums}, DType::kF64, on.device);
  fill(dlogits, kNaN);
  sums.zero();
  make_softmax_loss(on, classes, rows)->run(pass.pass(), x, y, &dlogits, sums);
  pass.stream().synchronize();
  const Tensor here = sums.to(Device::kCpu);
  return {Values(here.data<double>(), here.data<double>() + kLossSums), download(dlogits)};
}

TEST_P(Bf16Test, LossIsThatOfTheCpu) {
  for (const int classes : {1, 10, 333, 9000}) {
    SCOPED_TRACE(classes);
    const Values logits = rounded(distinct_values(3 * classes, 4, 8));
    const std::vector<int32_t> labels = {0, classes / 2, classes - 1};
    const Loss found = loss_of(logits, classes, labels, {device(), Precision::kBf16});
    const Loss wanted = loss_of(logits, classes, labels, Device::kCpu);
    EXPECT_THAT(found.sums, Pointwise(testing::FloatNear(1e-4f), wanted.sums));
    EXPECT_THAT(found.dlogits, Pointwise(Nearly(), wanted.dlogits));
  }
}

TEST_P(Bf16OnGpu, ALabelThatIsNoClassMakesTheGradientOfItsRowNaN) {
  const Loss loss = loss_of({0, 1, 0, 1, 0, 1}, 2, {1, 2, 1}, {device(), Precision::kBf16});
  EXPECT_TRUE(std::isnan(loss.sums[kLossSum]));
  EXPECT_EQ(loss.sums[kTop1Sum], 2);
  EXPECT_THAT(Values(loss.dlogits.begin() + 2, loss.dlogits.begin() + 4), testing::Each(testing::IsNan()));
  for (const size_t i : {0, 1, 4, 5}) EXPECT_TRUE(std::isfinite(loss.dlogits[i])) << i;
}

}  // namespace
}  // namespace owt::bf16_test

// Our own convolutions of few channels, against the definition. All factors are multiples of 1/8, so that every sum is
// exact in f32, and every result has one correct value in bf16.
#include "tests/simulated_gpu/device.h"

#include "layers/gpu/small_conv.h"
#include "layers/gpu/small_conv_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "layers/gpu/conv_plans.h"
#include "src/core/bf16.h"
#include "src/system/plan_cache.h"
#include "tests/support/check_layer.h"
#include "tests/support/conv_problem.h"
#include "tests/support/harness.h"

namespace owt::small_conv_gpu_test {
namespace {

using testing::Each;
using testing::Eq;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

struct SmallCase {
  std::string keys;
  Shape image;  // height, width, channels
  int64_t rows = 2;
};

std::vector<float> values(int64_t count, int seed) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>((i * 31 + seed * 17 + i / 23) % 23 - 11) / 8);
  return all;
}

Tensor bf16_on_gpu(const std::vector<float>& of, const Shape& shape) {
  return upload(of, shape, Device::kCuda, DType::kBF16);
}

std::vector<float> rounded(const std::vector<double>& exact) {
  std::vector<float> all;
  for (const double each : exact) all.push_back(from_bf16(to_bf16(static_cast<float>(each))));
  return all;
}

// A convolution with all its factors.
struct SmallProblem {
  explicit SmallProblem(const SmallCase& of)
      : g(geometry_of(of.keys, of.image)),
        rows(of.rows),
        x(values(rows * g.in_h * g.in_w * g.in_c, 1)),
        dy(values(rows * g.out_h * g.out_w * g.out_c, 2)),
        weight(values(g.out_c * g.kernel_h * g.kernel_w * g.in_c / g.groups, 3)),
        bias(values(g.out_c, 4)) {}

  Shape x_shape() const { return {rows, g.in_h, g.in_w, g.in_c}; }
  Shape y_shape() const { return {rows, g.out_h, g.out_w, g.out_c}; }
  Shape w_shape() const { return {g.out_c, g.kernel_h, g.kernel_w, g.in_c / g.groups}; }

  std::vector<float> forward(bool biased, bool relu) const {
    const Tensor on_gpu = bf16_on_gpu(x, x_shape()), w = bf16_on_gpu(weight, w_shape());
    const Tensor b = upload(bias, {g.out_c}, Device::kCuda);
    Tensor y(y_shape(), DType::kBF16, Device::kCuda);
    const Stream stream(Device::kCuda);
    SmallConv::forward(g, g.in_c, rows, DType::kBF16)
        .value()
        .queue(on_gpu.raw(), w.raw(), biased ? b.data() : nullptr, relu, y.raw(), stream);
    stream.synchronize();
    return download(y);
  }
  std::vector<float> data_gradient() const {
    const Tensor on_gpu = bf16_on_gpu(dy, y_shape()), w = bf16_on_gpu(weight, w_shape());
    Tensor dx(x_shape(), DType::kBF16, Device::kCuda);
    const Stream stream(Device::kCuda);
    SmallConv::data_gradient(g, rows, DType::kBF16)
        .value()
        .queue(on_gpu.raw(), w.raw(), nullptr, false, dx.raw(), stream);
    stream.synchronize();
    return download(dx);
  }
  // beta * before + the gradient, from x with this many channels; 0: as many as the weights have.
  std::vector<float> weight_gradient(DType dtype, float beta = 0, float before = kNaN, int64_t x_channels = 0) const {
    if (x_channels == 0) x_channels = g.in_c;
    std::vector<float> wide;
    for (size_t i = 0; i < x.size(); ++i) {
      wide.push_back(x[i]);
      if (static_cast<int64_t>(i + 1) % g.in_c == 0)
        wide.resize(wide.size() + static_cast<size_t>(x_channels - g.in_c));
    }
    const Tensor of_x = bf16_on_gpu(wide, {rows, g.in_h, g.in_w, x_channels}), of_dy = bf16_on_gpu(dy, y_shape());
    Tensor dw = upload(std::vector<float>(weight.size(), before), w_shape(), Device::kCuda, dtype);
    const Stream stream(Device::kCuda);
    const SmallConvWeights conv = SmallConvWeights::gradient(g, x_channels, rows, DType::kBF16).value();
    Tensor workspace({conv.workspace_bytes()}, DType::kU8, Device::kCuda);
    conv.queue(of_x.raw(), of_dy.raw(), beta, dw, workspace.raw(), stream);
    stream.synchronize();
    const std::vector<float> first = download(dw);
    if (beta == 0) {  // the counters of blocks are ready for the next launch
      conv.queue(of_x.raw(), of_dy.raw(), beta, dw, workspace.raw(), stream);
      stream.synchronize();
      EXPECT_EQ(download(dw), first);
    }
    return first;
  }
  ConvReference reference() const { return {g, rows}; }

  ConvGeometry g;
  int64_t rows;
  std::vector<float> x, dy, weight, bias;
};

// The convolutions of cifar10_quick on smaller images; the largest number of channels; channels, extents and pads that
// fit nowhere; more images than blocks; rows of more pixels than a block takes.
const std::vector<SmallCase>& small_cases() {
  static const std::vector<SmallCase> all{
      {"out=32 kernel=5 pad=2", {18, 18, 3}},
      {"out=32 kernel=5 pad=2", {16, 16, 32}},
      {"out=64 kernel=5 pad=2", {8, 8, 32}},
      {"out=64 kernel=3 pad=1", {5, 6, 64}, 1},
      {"out=7 kernel=[3,2] pad=[2,1]", {7, 5, 5}, 3},
      {"out=17 kernel=3", {6, 9, 20}},
      {"out=12 kernel=[1,4] pad=[0,3]", {3, 11, 9}},
      {"out=8 kernel=1 pad=1", {4, 3, 8}, 40},
      {"out=5 kernel=2 pad=3", {3, 3, 16}},
      {"out=24 kernel=3 pad=1", {2, 300, 2}, 1},
      {"out=1 kernel=4", {4, 4, 1}, 1},
  };
  return all;
}

TEST(SmallConv, ForwardIsTheDefinition) {
  for (const SmallCase& each : small_cases()) {
    SCOPED_TRACE(each.keys);
    const SmallProblem problem(each);
    for (const bool biased : {true, false})
      for (const bool relu : {true, false}) {
        std::vector<double> y =
            problem.reference().y(problem.x, problem.weight, biased ? problem.bias : std::vector<float>());
        if (relu)
          for (double& value : y) value = std::max(value, 0.0);
        EXPECT_EQ(problem.forward(biased, relu), rounded(y)) << "bias " << biased << ", relu " << relu;
      }
  }
}

TEST(SmallConv, TheDataGradientIsTheDefinition) {
  for (const SmallCase& each : small_cases()) {
    SCOPED_TRACE(each.keys);
    const SmallProblem problem(each);
    EXPECT_EQ(problem.data_gradient(), rounded(problem.reference().dx(problem.dy, problem.weight)));
  }
}

std::vector<float> as_f32(const std::vector<double>& exact) { return {exact.begin(), exact.end()}; }

TEST(SmallConv, TheWeightGradientIsTheDefinition) {
  for (const SmallCase& each : small_cases()) {
    SCOPED_TRACE(each.keys);
    const SmallProblem problem(each);
    const std::vector<double> dw = problem.reference().dw(problem.x, problem.dy);
    EXPECT_EQ(problem.weight_gradient(DType::kF32), as_f32(dw));
    EXPECT_EQ(problem.weight_gradient(DType::kBF16), rounded(dw));
  }
}

TEST(SmallConv, TheWeightGradientIsAddedToTheOneBefore) {
  const SmallProblem problem({"out=8 kernel=3 pad=1", {5, 5, 8}});
  std::vector<float> wanted = as_f32(problem.reference().dw(problem.x, problem.dy));
  for (float& each : wanted) each += 3;
  EXPECT_EQ(problem.weight_gradient(DType::kF32, 2, 1.5f), wanted);
}

TEST(SmallConv, ChannelsWithoutWeightsHaveNoGradient) {
  const SmallProblem problem({"out=8 kernel=3 pad=1", {5, 5, 3}});
  const std::vector<float> wanted = as_f32(problem.reference().dw(problem.x, problem.dy));
  for (const int64_t channels : {4, 8}) EXPECT_EQ(problem.weight_gradient(DType::kF32, 0, kNaN, channels), wanted);
}

// Teams of blocks: 43 groups of three images, in seven teams.
TEST(SmallConv, TheWeightGradientOfManyImagesIsTheDefinition) {
  const SmallProblem problem({"out=8 kernel=5 pad=2", {3, 4, 8}, 128});
  EXPECT_EQ(problem.weight_gradient(DType::kF32), as_f32(problem.reference().dw(problem.x, problem.dy)));
}

// The pixels of an image are padded to a multiple of 16, with a dy of 0.
TEST(SmallConv, AnInfinityOfXIsOnlyInTheGradientsOfItsWindows) {
  SmallProblem problem({"out=1 kernel=[1,2]", {1, 4, 1}, 1});
  problem.x = {kInfinity, 1, 1, 1};
  problem.dy = {1, 1, 1};
  EXPECT_EQ(problem.weight_gradient(DType::kF32), (std::vector<float>{kInfinity, 3}));
  problem.x = {kNaN, 1, 1, 1};
  const std::vector<float> dw = problem.weight_gradient(DType::kF32, 2, 0);
  EXPECT_TRUE(std::isnan(dw[0]));
  EXPECT_EQ(dw[1], 3);
}

TEST(SmallConv, OtherConvolutionsAreRefused) {
  const auto supported = [](const std::string& keys, const Shape& image, DType dtype = DType::kBF16) {
    const ConvGeometry g = geometry_of(keys, image);
    const bool forward = SmallConv::forward(g, g.in_c, 2, dtype).has_value();
    EXPECT_EQ(SmallConv::data_gradient(g, 2, dtype).has_value(), forward);
    EXPECT_EQ(SmallConvWeights::gradient(g, g.in_c, 2, dtype).has_value(), forward);
    return forward;
  };
  EXPECT_TRUE(supported("out=64 kernel=3", {9, 9, 64}));
  EXPECT_FALSE(supported("out=64 kernel=3", {9, 9, 64}, DType::kF32));
  EXPECT_FALSE(supported("out=64 kernel=3 stride=[1,2]", {9, 9, 64}));
  EXPECT_FALSE(supported("out=64 kernel=3 stride=[2,1]", {9, 9, 64}));
  EXPECT_FALSE(supported("out=64 kernel=3 groups=2", {9, 9, 64}));
  EXPECT_FALSE(supported("out=65 kernel=3", {9, 9, 64}));
  EXPECT_FALSE(supported("out=64 kernel=3", {9, 9, 65}));
  EXPECT_FALSE(supported("out=64 kernel=8", {9, 9, 64})) << "512 KiB of weights";
  EXPECT_FALSE(supported("out=64 kernel=3", {3, 500, 64})) << "193 KB for three rows of the image";
}

// Windows with a NaN have no other result, also with a relu.
TEST(SmallConv, NaNGoesToTheWindowsThatHaveIt) {
  SmallProblem problem({"out=8 kernel=3", {5, 5, 3}, 1});
  problem.x[(1 * 5 + 2) * 3 + 1] = kNaN;
  const std::vector<float> y = problem.forward(true, true);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 24 < 2) << i;
}

// A sum of 100 terms is padded to 112 with weights of 0.
TEST(SmallConv, AnInfinityStaysOne) {
  SmallProblem problem({"out=8 kernel=5", {5, 5, 4}, 1});
  for (float& each : problem.weight) each = std::abs(each) + 1;
  problem.x[0] = kInfinity;
  EXPECT_THAT(problem.forward(false, false), Each(kInfinity));
}

TEST(SmallConv, ImagesDoNotDependOnTheOthersInTheBatch) {
  const SmallCase of{"out=24 kernel=3 pad=1", {6, 7, 12}, 3};
  SmallProblem all(of);
  for (size_t i = 0; i < all.x.size(); ++i) all.x[i] *= 1 + static_cast<float>(i) / 1000;  // sums are rounded
  const std::vector<float> y = all.forward(true, false), again = all.forward(true, false);
  EXPECT_EQ(y, again);
  std::vector<float> apart;
  for (int64_t row = 0; row < of.rows; ++row) {
    SmallProblem one({of.keys, of.image, 1});
    one.x.assign(all.x.begin() + row * of.image.elements(), all.x.begin() + (row + 1) * of.image.elements());
    const std::vector<float> of_row = one.forward(true, false);
    apart.insert(apart.end(), of_row.begin(), of_row.end());
  }
  EXPECT_EQ(apart, y);
}

// Every presentation of the images, and the gradients beside it.
TEST(OwnConv, InALayerEqualsCudnn) {
  const SmallProblem problem({"out=16 kernel=3 pad=1", {6, 5, 3}});
  const ConvGeometry& g = problem.g;
  const Cuda cuda{Precision::kBf16};
  Param weight, bias;
  weight.full_shape = weight.file_shape = problem.w_shape();
  bias.full_shape = bias.file_shape = {g.out_c};
  for (Param* param : {&weight, &bias}) {
    param->part = {0, g.out_c};
    param->allocate(Compute(Device::kCuda, Precision::kBf16));
    param->set_value(upload(param == &weight ? problem.weight : problem.bias, param->shape(), Device::kCpu));
  }
  const Stream stream(Device::kCuda);
  struct Results {
    std::vector<float> y, dx, weight, bias;
    bool operator==(const Results&) const = default;
  };
  for (const auto presentation :
       {ConvPresentation::kPlain, ConvPresentation::kFourChannels, ConvPresentation::kEightChannels})
    for (const bool relu : {false, true})
      for (const bool laid_out_before : {false, true}) {
        const auto results = [&](bool own) {
          const ConvEpilogue epilogue{.bias = true, .relu = relu};
          ConvPlans plans = conv_plans_as(cuda, g, problem.rows, epilogue, presentation, true).value();
          if (own) {
            const int64_t channels = plans.packing ? plans.packing->packed().in_c : g.in_c;
            plans.own_forward = SmallConv::forward(g, channels, problem.rows, DType::kBF16);
            plans.own_data_gradient = SmallConv::data_gradient(g, problem.rows, DType::kBF16);
            plans.own_weight_gradient = SmallConvWeights::gradient(g, channels, problem.rows, DType::kBF16);
            plans.forward.reset();
            plans.data_gradient.reset();
            plans.weight_gradient.reset();
          }
          const auto op = bind_conv_with(std::move(plans), cuda, g, problem.rows, weight, &bias, relu);
          weight.grad_is_zero = bias.grad_is_zero = true;
          Pass pass;
          pass.stream = &stream;
          pass.scratch = scratch_for(*op, Device::kCuda);
          Tensor x = upload(problem.x, problem.x_shape(), Device::kCpu);
          if (const auto layout = op->wanted_images(); layout && laid_out_before) x = laid_out(x, *layout);
          x = bf16_on_gpu(download(x), x.shape());
          Tensor y(problem.y_shape(), DType::kBF16, Device::kCuda), dx(problem.x_shape(), DType::kBF16, Device::kCuda);
          op->forward(pass, x, y);
          stream.synchronize();
          const std::vector<float> of_forward = download(y);
          run_backward(*op, pass, x, y, bf16_on_gpu(problem.dy, problem.y_shape()), &dx);
          stream.synchronize();
          std::vector<float> dw = download(weight.grad);
          for (float& each : dw) each = from_bf16(to_bf16(each));  // cuDNN rounds it
          return Results{of_forward, download(dx), dw, download(bias.grad)};
        };
        EXPECT_TRUE(results(true) == results(false)) << static_cast<int>(presentation) << relu << laid_out_before;
      }
}

// Chooses the plans of a convolution, with `cudnn_ms` instead of the measured times of cuDNN's plans. The choice for a
// side is stored.
ConvPlans chosen(int64_t side, double cudnn_ms) {
  const ConvGeometry g = geometry_of("out=8 kernel=3 pad=1", {side, side, 8});
  const Cuda cuda{Precision::kBf16};
  const ConvEpilogue epilogue{.bias = true, .relu = true};
  for (const bool fused : {true, false}) conv_plans_as(cuda, g, 2, epilogue, ConvPresentation::kPlain, fused);
  for (const auto& [key, text] : PlanCache::process().known())
    for (const CudnnGraph& graph :
         {conv_fused_graph(g, 2, DType::kBF16, epilogue), conv_forward_graph(g, 2, DType::kBF16),
          conv_weight_gradient_graph(g, 2, DType::kBF16), conv_data_gradient_graph(g, 2, DType::kBF16)})
      if (const size_t json = text.find("\n{"); json != std::string::npos && key.ends_with(graph.text()))
        PlanCache::process().store_for_this_process(key, concat(cudnn_ms, text.substr(json)));
  return choose_conv_plans(cuda, g, 2, epilogue);
}

TEST(OwnConv, IsChosenWhereItIsFaster) {
  const ConvPlans plans = chosen(17, 1e6);
  EXPECT_TRUE(plans.own_forward && plans.own_data_gradient && plans.own_weight_gradient);
  EXPECT_FALSE(plans.forward || plans.data_gradient || plans.weight_gradient);
  const ConvPlans again = chosen(17, 1e-9);  // it is remembered
  EXPECT_TRUE(again.own_forward && again.own_data_gradient && again.own_weight_gradient);
}

TEST(OwnConv, IsNotChosenWhereCudnnIsFaster) {
  const ConvPlans plans = chosen(19, 1e-9);
  EXPECT_FALSE(plans.own_forward || plans.own_data_gradient || plans.own_weight_gradient);
  EXPECT_TRUE(plans.forward && plans.data_gradient && plans.weight_gradient);
}

}  // namespace
}  // namespace owt::small_conv_gpu_test

#include "src/predict/step_launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "src/parallel/gradient_norms.h"
#include "src/parallel/optimizer.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/alexnet.h"
#include "tests/support/models.h"

namespace owt::step_launches_test {
namespace {

using ::testing::HasSubstr;

Plan plan_of(const Model& model, int64_t rows) {
  return make_plan(model, {.step_rows = rows, .on = {Device::kCuda, Precision::kBf16}});
}

StepEstimate estimate(const Model& model, int64_t rows, const char* device = "H200") {
  return estimate_step(device_speed(device), model, plan_of(model, rows));
}

// A convolution of four pixels, then a pool of one pixel and a dense layer.
Model small_model() {
  return model_of("[8, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 16, kernel = 1 },
  { name = "relu", type = "relu" },
  { name = "pool", type = "max_pool", kernel = 2 },
  { name = "fc", type = "dense", out = 4 })");
}

struct Expected {
  const char *name, *kernel;
  double flops, bytes, instructions;  // for ten rows
  bool early = false;
};

TEST(StepLaunches, OfASmallNetworkHaveTheFlopsAndBytesThatAreCountedByHand) {
  constexpr double x = 10 * 2 * 32, y = 10 * 2 * 64, pooled = 10 * 2 * 16, logits = 10 * 2 * 4, index = 10 * 16;
  constexpr double conv_weights = 2 * 128, fc_weights = 2 * 64, result = 10 * 24;
  constexpr double conv_flops = 10 * 2 * 4 * 16 * 8, fc_flops = 10 * 2 * 16 * 4, packs = 10 * 16 / 8 / 32.0;
  const Expected expected[] = {{"step", "cudaMemcpyAsync", 0, 0, 0},
                               {"conv", "cudnnBackendExecute", conv_flops, x + conv_weights + y, 0},
                               {"pool", "max_pool_forward", 0, y + pooled + index, packs * (147 + 4 * 31)},
                               {"fc", "cublasLtMatmul", fc_flops, pooled + fc_weights + logits, 0},
                               {"loss", "softmax_rows", 0, 2 * logits + 2 * result, 0},
                               {"fc", "cublasLtMatmul", fc_flops, pooled + fc_weights + logits, 0},
                               {"pool", "over_channels", 0, y + pooled + index, packs * (162 + 4 * 38)},
                               {"conv", "cudnnBackendExecute", conv_flops, x + conv_weights + y, 0},
                               {"weights", "update_by_products", fc_flops, pooled + logits + (64 + 4) * 18.0, 0},
                               {"weights", "update_items", 0, 128 * 20.0 + 16 * 22.0, 0, true}};
  const Model model = small_model();
  const std::vector<StepLaunch> launches = launches_of_step(model, plan_of(model, 10));
  ASSERT_EQ(launches.size(), std::size(expected));
  for (size_t i = 0; i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].name, expected[i].name) << i;
    EXPECT_EQ(launches[i].kernel, expected[i].kernel) << i;
    EXPECT_DOUBLE_EQ(launches[i].flops * 10, expected[i].flops) << i;
    EXPECT_DOUBLE_EQ(launches[i].bytes(10), expected[i].bytes) << i;
    EXPECT_DOUBLE_EQ(launches[i].warp_instructions * 10, expected[i].instructions) << i;
    EXPECT_EQ(launches[i].early, expected[i].early) << i;  // after a kernel of our own
  }
}

// Forward, the data gradient and the weight gradient of the second convolution: 4 pixels of 24 channels, each a sum of
// 9 x 16 terms; 4 pixels of 16 channels, with 24 channels padded to 32; 24 x 9 x 16 weights, each a sum of 4 terms.
TEST(StepLaunches, OfFewChannelsMayBeProductsOfOurOwnKernels) {
  const auto products = [](const char* second, Precision precision) {
    const Model model = model_of("[8, 2, 2]", 4,
                                 concat(R"(
  { name = "first", type = "conv", out = 16, kernel = 1 },
  { name = "second", type = "conv", out = 24, kernel = 3, pad = 1)",
                                        second, R"( },
  { name = "fc", type = "dense", out = 4 })"));
    std::vector<double> all;
    for (const StepLaunch& launch :
         launches_of_step(model, make_plan(model, {.step_rows = 10, .on = {Device::kCuda, precision}})))
      if (launch.kind == LaunchKind::kConvolution) all.push_back(launch.own_products);
    return all;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(products("", Precision::kBf16), ElementsAre(2, 3 * 9, 2 * 18, 2 * 18, 1));
  EXPECT_THAT(products(", stride = 2", Precision::kBf16), ElementsAre(2, 0, 0, 0, 1));
  EXPECT_THAT(products(", groups = 2", Precision::kBf16), ElementsAre(2, 0, 0, 0, 1));
  EXPECT_THAT(products("", Precision::kTf32), ElementsAre(0, 0, 0, 0, 0));
}

// The launches of two residual blocks besides their convolutions, with the number of tensors that they read and write.
// All tensors of a block are of one size.
TEST(StepLaunches, OfResidualBlocksPassOverMemoryAsOftenAsTheKernels) {
  const std::string body = R"(type = "residual", body = [
    { name = "conv1", type = "conv", out = 8, kernel = 1, bias = false },
    { name = "bn1", type = "batch_norm", rows = 2 },
    { name = "relu", type = "relu" },
    { name = "conv2", type = "conv", out = 8, kernel = 1, bias = false },
    { name = "bn2", type = "batch_norm", rows = 2 } ] },)";
  const Model model =
      model_of("[8, 2, 2]", 4,
               concat(R"({ name = "conv", type = "conv", out = 8, kernel = 1 }, { name = "one", )", body,
                      R"({ name = "two", )", body, R"({ name = "fc", type = "dense", out = 4 })"));
  const auto passes = [&](int64_t layer, Phase phase) {
    std::vector<std::pair<std::string, int>> all;
    for (const StepLaunch& launch : launches_of_step(model, plan_of(model, 10)))
      if (launch.layer == layer && launch.phase == phase && launch.flops == 0)
        all.emplace_back(launch.kernel, static_cast<int>(launch.bytes(10)) / (10 * 2 * 32));
    return all;
  };
  using ::testing::ElementsAre;
  using ::testing::Pair;
  const auto sums = [](int tensors) { return Pair("over_channels", tensors); };
  for (const int64_t layer : {1, 2})
    EXPECT_THAT(passes(layer, Phase::kForward), ElementsAre(sums(1), sums(2), sums(1), sums(3)));
  EXPECT_THAT(passes(2, Phase::kBackward), ElementsAre(Pair("relu_backward", 3), sums(2), sums(3), sums(2), sums(3),
                                                       Pair("combine_where_positive", 4)));
  EXPECT_THAT(passes(1, Phase::kBackward), ElementsAre(sums(2), sums(3), sums(2), sums(3), Pair("combine", 3)));
}

// The backward launches of two convolutions, with the tensors of 10 * 4 * 8 numbers that they read and write besides
// weights.
TEST(StepLaunches, OfAConvolutionMaskForTheOneBeforeItInBf16) {
  const auto passes = [](const char* first, const char* second, Precision precision) {
    const Model model = model_of("[8, 2, 2]", 4,
                                 concat(R"({ name = "a", type = "conv", out = 8, kernel = 1)", first,
                                        R"( }, { name = "relu", type = "relu" },
                                        { name = "b", type = "conv", out = 8, kernel = 1)",
                                        second, R"( }, { name = "fc", type = "dense", out = 4 })"));
    const Plan plan = make_plan(model, {.step_rows = 10, .on = {Device::kCuda, precision}});
    const double tensor = 10 * 32 * static_cast<double>(size_of(activation_type(precision)));
    std::vector<std::pair<std::string, int>> all;
    for (const StepLaunch& launch : launches_of_step(model, plan))
      if (launch.layer < 3 && launch.phase == Phase::kBackward)
        all.emplace_back(launch.kernel, static_cast<int>((launch.bytes(10) - launch.weight_bytes) / tensor));
    return all;
  };
  using ::testing::ElementsAre;
  using ::testing::Pair;
  const auto product = [](int tensors) { return Pair("cudnnBackendExecute", tensors); };
  const auto sums = [](int tensors) { return Pair("over_channels", tensors); };
  // The sums of b's bias, b's gradients of input and weights, and a's gradient of weights.
  EXPECT_THAT(passes("", "", Precision::kBf16), ElementsAre(sums(1), product(3), product(2), product(2)));
  for (const auto& all : {passes("", ", groups = 2", Precision::kBf16), passes(", bias = false", "", Precision::kBf16)})
    EXPECT_THAT(all, ElementsAre(sums(1), product(2), product(2), sums(3), product(2)));
  EXPECT_THAT(passes("", "", Precision::kTf32), ElementsAre(sums(1), product(2), product(2), sums(3), product(2)));
}

// In the narrow kernels a block of threads takes all channels of a pixel: at most 256 packs of 8 bf16.
TEST(StepLaunches, OfAnLrnDependOnItsChannels) {
  for (const auto& [channels, kernel] : {std::pair{2048, "lrn_forward_narrow"}, std::pair{2056, "lrn_forward_wide"}}) {
    const Model model = model_of(concat("[", channels, ", 1, 1]"), 4, R"(
  { name = "lrn", type = "lrn", size = 5 },
  { name = "fc", type = "dense", out = 4 })");
    EXPECT_EQ(launches_of_step(model, plan_of(model, 10)).at(1).kernel, kernel) << channels << " channels";
  }
}

// One layer's launches of AlexNet, by its phase.
std::vector<StepEstimate::Launch> of(const StepEstimate& step, const std::string& name, Phase phase) {
  std::vector<StepEstimate::Launch> found;
  for (const auto& each : step.launches)
    if (each.launch.name == name && each.launch.phase == phase) found.push_back(each);
  return found;
}

TEST(StepEstimate, ALaunchTakesTheLongestOfWhatBoundsIt) {
  const StepEstimate step = estimate(model_of(kAlexNet), 1024);
  const auto us = [&](const char* name, Phase phase, size_t i) { return of(step, name, phase).at(i).seconds * 1e6; };
  // 2 * 1024 * 729 * 192 * 1600 flops in 5832 tiles of 128 x 192, which reach 0.9 of 790 TFLOP/s, in 45 waves of 132.
  EXPECT_NEAR(us("conv2", Phase::kForward, 0), 458.6e9 / (0.9 * 790e12) * 1e6 * 45 * 132 / 5832 + 15.3, 0.1);
  EXPECT_STREQ(of(step, "conv2", Phase::kForward)[0].bound, "flops");
  // y, dy and dy again of 1024 * 4096 numbers.
  EXPECT_NEAR(us("relu6", Phase::kBackward, 0), 3 * 2 * 1024 * 4096.0 / (0.95 * 4.3e12) * 1e6 + 1.3, 0.1);
  EXPECT_STREQ(of(step, "relu6", Phase::kBackward)[0].bound, "bytes");
  EXPECT_STREQ(of(step, "pool1", Phase::kForward)[0].bound, "bytes");
  EXPECT_NEAR(us("fc8", Phase::kBackward, 0), 1.5 + 0.8, 1e-9);  // the kernel before it is the loss
  EXPECT_STREQ(of(step, "fc8", Phase::kBackward)[0].bound, "launch");
}

TEST(StepEstimate, SaysWhatOurOwnKernelsMaySaveButDoesNotCountIt) {
  const Model model = small_model();
  const StepEstimate step = estimate(model, 10);
  double gain = 0;
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) gain += of(step, "conv", phase)[0].seconds - 2.8e-6;
  EXPECT_NEAR(step.own_gain_seconds(), gain, 1e-12);
  double sum = 0;
  for (const auto& each : step.launches) sum += each.seconds;
  EXPECT_DOUBLE_EQ(step.seconds(), sum);
  EXPECT_THAT(step.table(), HasSubstr("Not counted: "));
  const StepEstimate single = estimate_step(
      device_speed("H200"), model, make_plan(model, {.step_rows = 10, .on = {Device::kCuda, Precision::kFp32}}));
  EXPECT_EQ(single.own_gain_seconds(), 0);
  EXPECT_THAT(single.table(), ::testing::Not(HasSubstr("Not counted: ")));
}

TEST(StepEstimate, IsBoundByInstructionsWhereMemoryIsFaster) {
  DeviceSpeed slow = device_speed("H200");
  slow.warp_instructions_per_s = 1e9;
  const Model model = small_model();
  const StepEstimate step = estimate_step(slow, model, plan_of(model, 1000));
  EXPECT_STREQ(of(step, "pool", Phase::kForward)[0].bound, "issue");
  EXPECT_NEAR(of(step, "pool", Phase::kForward)[0].seconds, 1000 * 16 / 8 / 32.0 * (147 + 4 * 31) / 0.7e9 + 1.3e-6,
              1e-9);
}

TEST(StepEstimate, AlexNetOnAnH200ReachesWhatItIsMeantToByThisModel) {
  const Model alexnet = model_of(kAlexNet);
  EXPECT_GE(estimate(alexnet, 128).images_per_second(), 75e3) << estimate(alexnet, 128).table();
  EXPECT_GE(estimate(alexnet, 1024).images_per_second(), 115e3) << estimate(alexnet, 1024).table();
}

TEST(StepEstimate, LargeDenseLayersAreUpdatedDuringTheConvolutions) {
  const StepEstimate step = estimate(model_of(kAlexNet), 128);
  const auto updates = of(step, "weights", Phase::kUpdate);
  ASSERT_EQ(updates.size(), 3u);  // weights and biases of the dense layers, then of the convolutions
  EXPECT_TRUE(updates[0].launch.beside);
  EXPECT_TRUE(updates[1].launch.beside);
  EXPECT_FALSE(updates[2].launch.beside);
  EXPECT_FALSE(updates[0].launch.early);
  EXPECT_TRUE(updates[1].launch.early);  // after the one before it in the stream of updates
  EXPECT_DOUBLE_EQ(step.beside_seconds(), updates[0].seconds + updates[1].seconds);
  EXPECT_EQ(estimate(small_model(), 128).beside_seconds(), 0);
}

TEST(StepEstimate, ADenseLayerIsUpdatedConcurrentlyFromTheLeastNumberOfParametersOn) {
  const auto beside = [](int64_t features) {
    const Model model = model_of(concat("[", features, ", 1, 1]"), 1024, R"(
  { name = "fc", type = "dense", out = 1024, bias = false })");
    return estimate(model, 128).beside_seconds();
  };
  EXPECT_GT(beside(kUpdateBesideFrom / 1024), 0);
  EXPECT_EQ(beside(kUpdateBesideFrom / 1024 - 1), 0);
}

TEST(StepLaunches, OfLargeWindowsHaveAnIndexOfFourBytes) {
  const auto bytes = [](int kernel) {
    const Model model = model_of(concat("[8, ", kernel, ", ", kernel, "]"), 4,
                                 concat(R"(
  { name = "pool", type = "max_pool", kernel = )",
                                        kernel, R"( },
  { name = "fc", type = "dense", out = 4 })"));
    return launches_of_step(model, plan_of(model, 10)).at(1).bytes(1);
  };
  EXPECT_EQ(bytes(11), 2 * (121 + 1) * 8 + 8);
  EXPECT_EQ(bytes(12), 2 * (144 + 1) * 8 + 4 * 8);
}

TEST(StepLaunches, ARunningAverageHasNoVelocityAndNoCopyToUpdate) {
  const Model model = model_of("[8, 2, 2]", 4, R"(
  { name = "norm", type = "batch_norm" },
  { name = "fc", type = "dense", out = 4 })");
  // Weight and bias with f32 gradients, velocity and copy; mean and variance.
  EXPECT_EQ(update_bytes(plan_of(model, 10), 0), 2 * 8 * 22 + 2 * 8 * 12);
}

// The last layer's parameters: a weight of 1024 x 1024, and a bias.
TEST(StepEstimate, GradientsOfFewRowsAreNeitherWrittenNorRead) {
  const Model model = model_of("[1024, 1, 1]", 1024, R"(
  { name = "fc", type = "dense", out = 1024 })");
  constexpr double kWeights = 1024 * 1024, kBias = 1024, kActivations = 2 * 2 * 1024;
  const auto traffic = [&](int64_t rows, const char* kernel) {
    double bytes = 0;
    for (const StepLaunch& launch : launches_of_step(model, plan_of(model, rows)))
      if (launch.kernel == kernel && launch.phase != Phase::kForward) bytes += launch.bytes(static_cast<double>(rows));
    return bytes;
  };
  EXPECT_DOUBLE_EQ(traffic(256, "update_by_products"), 18 * (kWeights + kBias) + 256 * kActivations);
  EXPECT_DOUBLE_EQ(traffic(256, "update_items"), 0);
  EXPECT_DOUBLE_EQ(traffic(256, "cublasLtMatmul"), 0);
  EXPECT_DOUBLE_EQ(traffic(257, "update_by_products"), 0);
  EXPECT_DOUBLE_EQ(traffic(257, "update_items"), 20 * kWeights + 22 * kBias);
  EXPECT_DOUBLE_EQ(traffic(257, "cublasLtMatmul"), 2 * kWeights + 257 * kActivations);
}

TEST(StepLaunches, UpdateAsManyParametersTogetherAsALaunchTakes) {
  const auto updates = [](int layers, const char* kernel, bool keeps_gradients) {
    std::string text;
    for (int i = 0; i < layers; ++i) text += format("  {{ name = \"fc{}\", type = \"dense\", out = 4 }},\n", i);
    const Model model = model_of("[4, 1, 1]", 4, text);
    const PlanRequest request{
        .step_rows = 10, .on = {Device::kCuda, Precision::kBf16}, .keeps_gradients = keeps_gradients};
    const std::vector<StepLaunch> launches = launches_of_step(model, make_plan(model, request));
    return std::count_if(launches.begin(), launches.end(), [&](const auto& one) { return one.kernel == kernel; });
  };
  EXPECT_EQ(updates(kParamsPerUpdate / 2, "update_items", true), 1);  // a weight and a bias each
  EXPECT_EQ(updates(kParamsPerUpdate / 2 + 1, "update_items", true), 2);
  EXPECT_EQ(updates(kProductsPerUpdate / 2, "update_by_products", false), 1);
  EXPECT_EQ(updates(kProductsPerUpdate / 2 + 1, "update_by_products", false), 2);
}

TEST(StepEstimate, TheFloorIsTheLongerOfProductsAndMemoryOfEveryLaunch) {
  const StepEstimate step = estimate(model_of(kAlexNet), 128);
  double floor = 0;
  for (const auto& [launch, seconds, bound, own_seconds] : step.launches)
    floor += std::max(launch.flops * 128 / 790e12, launch.bytes(128) / 4.3e12);
  EXPECT_DOUBLE_EQ(step.floor_seconds, floor);
}

TEST(StepEstimate, SaysThatItIsAModelAndWhatItAssumes) {
  const std::string table = estimate(small_model(), 128).table();
  EXPECT_THAT(table, HasSubstr("This is a model, not a measurement: bf16 at 4.08 TB/s and 790 TFLOP/s"));
  EXPECT_THAT(table, HasSubstr("10 launches"));
  EXPECT_THAT(table, HasSubstr("max_pool_forward"));
}

TEST(StepEstimate, IsThatOfOneRank) {
  PlanRequest two{.ranks = 2};
  const Model model = small_model();
  EXPECT_THROW(launches_of_step(model, make_plan(model, two)), Error);
}

}  // namespace
}  // namespace owt::step_launches_test

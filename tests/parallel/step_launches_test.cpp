#include "src/parallel/step_launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/check.h"
#include "src/core/files.h"
#include "tests/support/alexnet.h"
#include "tests/support/models.h"

namespace owt {
namespace {

using ::testing::HasSubstr;

Plan plan_of(const Model& model, int64_t rows) {
  return make_plan(model, {.step_rows = rows, .on = {Device::kCpu, Precision::kBf16}});
}

StepEstimate estimate(const Model& model, int64_t rows, const char* device = "H200") {
  return estimate_step(device_speed(device), model, plan_of(model, rows));
}

// A convolution of four pixels, a pool of one and a dense layer behind it.
Model small_model() {
  return model_of("[8, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 16, kernel = 1 },
  { name = "relu", type = "relu" },
  { name = "pool", type = "max_pool", kernel = 2 },
  { name = "fc", type = "dense", out = 4 })");
}

struct Expected {
  const char *name, *kernel;
  double flops, bytes, instructions;  // of ten rows
};

TEST(StepLaunches, OfASmallNetworkHaveTheFlopsAndBytesThatAreCountedByHand) {
  constexpr double x = 10 * 2 * 32, y = 10 * 2 * 64, pooled = 10 * 2 * 16, logits = 10 * 2 * 4, index = 10 * 16;
  constexpr double conv_weights = 2 * 128, fc_weights = 2 * 64, result = 10 * 24;
  constexpr double conv_flops = 10 * 2 * 4 * 16 * 8, fc_flops = 10 * 2 * 16 * 4, packs = 10 * 16 / 8 / 32.0;
  const Expected expected[] = {{"step", "cudaMemcpyAsync", 0, 0, 0},
                               {"conv", "cudnnBackendExecute", conv_flops, x + conv_weights + y, 0},
                               {"pool", "max_pool_forward", 0, y + pooled + index, packs * (147 + 4 * 31)},
                               {"fc", "cublasLtMatmul", fc_flops, pooled + fc_weights + logits, 0},
                               {"loss", "softmax_rows", 0, 2 * logits + result, 0},
                               {"loss", "add_results", 0, result, 0},
                               {"fc", "over_channels", 0, logits, 0},
                               {"fc", "cublasLtMatmul", fc_flops, pooled + fc_weights + logits, 0},
                               {"fc", "cublasLtMatmul", fc_flops, pooled + fc_weights + logits, 0},
                               {"pool", "over_channels", 0, y + pooled + index, packs * (162 + 4 * 38)},
                               {"conv", "cudnnBackendExecute", conv_flops, x + conv_weights + y, 0},
                               {"weights", "update_items", 0, (128 + 64) * 20.0 + (16 + 4) * 22.0, 0}};
  const Model model = small_model();
  const std::vector<StepLaunch> launches = launches_of_step(model, plan_of(model, 10));
  ASSERT_EQ(launches.size(), std::size(expected));
  for (size_t i = 0; i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].name, expected[i].name) << i;
    EXPECT_EQ(launches[i].kernel, expected[i].kernel) << i;
    EXPECT_DOUBLE_EQ(launches[i].flops * 10, expected[i].flops) << i;
    EXPECT_DOUBLE_EQ(launches[i].bytes(10), expected[i].bytes) << i;
    EXPECT_DOUBLE_EQ(launches[i].warp_instructions * 10, expected[i].instructions) << i;
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
  // 2 * 1024 * 729 * 192 * 1600 flops at 78 % of 790 TFLOP/s; of the gradient 92 % of that, in two launches.
  EXPECT_NEAR(us("conv2", Phase::kForward, 0), 458.6e9 / (0.78 * 790e12) * 1e6 + 1.3, 0.1);
  EXPECT_NEAR(us("conv2", Phase::kBackward, 1), 458.6e9 / (0.78 * 0.92 * 790e12) * 1e6 + 2.6, 0.1);
  EXPECT_STREQ(of(step, "conv2", Phase::kForward)[0].bound, "flops");
  // Blocks of 4 x 4 pixels: a kernel of 3 x 3 over 48 channels.
  EXPECT_NEAR(us("conv1", Phase::kForward, 1), 2 * 1024 * 3025.0 * 64 * 432 / (0.5 * 790e12) * 1e6 + 1.3, 0.1);
  // y, dy and dy again of 1024 * 13 * 13 * 384 numbers.
  EXPECT_NEAR(us("relu3", Phase::kBackward, 0), 3 * 2 * 1024 * 169 * 384.0 / (0.95 * 4.3e12) * 1e6 + 1.3, 0.1);
  EXPECT_STREQ(of(step, "relu3", Phase::kBackward)[0].bound, "bytes");
  EXPECT_STREQ(of(step, "pool1", Phase::kForward)[0].bound, "bytes");
  EXPECT_NEAR(of(step, "loss", Phase::kLoss)[1].seconds * 1e6, 1.5 + 1.3, 1e-9);
  EXPECT_STREQ(of(step, "loss", Phase::kLoss)[1].bound, "launch");
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

TEST(StepEstimate, LargeDenseLayersAreUpdatedBesideTheConvolutions) {
  const StepEstimate step = estimate(model_of(kAlexNet), 128);
  const auto updates = of(step, "weights", Phase::kUpdate);
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_TRUE(updates[0].launch.beside);
  EXPECT_FALSE(updates[1].launch.beside);
  EXPECT_DOUBLE_EQ(step.beside_seconds(), updates[0].seconds);
  EXPECT_EQ(estimate(small_model(), 128).beside_seconds(), 0);
}

TEST(StepEstimate, SaysThatItIsAModelAndWhatItAssumes) {
  const std::string table = estimate(small_model(), 128).table();
  EXPECT_THAT(table, HasSubstr("This is a model and no measurement: bf16 at 4.08 TB/s and 790 TFLOP/s"));
  EXPECT_THAT(table, HasSubstr("12 launches"));
  EXPECT_THAT(table, HasSubstr("max_pool_forward"));
}

TEST(StepEstimate, IsThatOfOneRank) {
  PlanRequest two{.ranks = 2};
  const Model model = small_model();
  EXPECT_THROW(launches_of_step(model, make_plan(model, two)), Error);
}

}  // namespace
}  // namespace owt

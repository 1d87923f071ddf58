#include "src/predict/launch_time.h"

#include <gtest/gtest.h>

#include "src/predict/step_price.h"
#include "src/system/config.h"

namespace owt::launch_time_test {
namespace {

constexpr double kMultiprocessors = 132, kPeak = 790e12, kEachConvolution = 15.3e-6;

// A convolution without memory traffic: 256 x channels outputs a row, each a sum of 4096 products.
StepLaunch convolution(double channels) {
  return {.kind = LaunchKind::kConvolution, .flops = 2 * 256 * channels * 4096, .height = 256, .width = channels};
}

// Without what every convolution takes.
double seconds(const StepLaunch& launch, double rows, double part = 1) {
  return launch_time(launch, device_speed("H200"), Precision::kBf16, rows, part).seconds - kEachConvolution;
}

TEST(LaunchTime, TheLargestTilesReachThePeakInCompleteWaves) {
  for (const double channels : {128, 256})
    EXPECT_NEAR(seconds(convolution(channels), kMultiprocessors),
                kMultiprocessors * convolution(channels).flops / kPeak, 1e-12);
  // One tile more.
  EXPECT_GT(seconds(convolution(128), kMultiprocessors + 1), 1.5 * seconds(convolution(128), kMultiprocessors));
}

// A tile of 256 x 32 loads 288 factors for each term of its sums, and a tile of 256 x 128 loads 384.
TEST(LaunchTime, FewChannelsAreNoFasterThanAFullTileAndNarrowTilesAreSlow) {
  constexpr double rows = 100 * kMultiprocessors;
  EXPECT_DOUBLE_EQ(seconds(convolution(8), rows), seconds(convolution(32), rows));
  EXPECT_NEAR(seconds(convolution(32), rows) / seconds(convolution(128), rows), 288 / 384.0, 1e-9);
}

TEST(LaunchTime, LongSumsOfFewTilesAreSplit) {
  const StepLaunch one_tile{
      .kind = LaunchKind::kConvolution, .flops = 2e9, .height = 64, .width = 64, .weight_gradient = true};
  DeviceSpeed one = device_speed("H200");
  one.bf16_flops /= one.multiprocessors;
  one.multiprocessors = 1;
  EXPECT_LT(seconds(one_tile, 1), launch_time(one_tile, one, Precision::kBf16, 1).seconds / 40);
}

TEST(LaunchTime, GroupsAreProductsOfTheirOwn) {
  StepLaunch grouped = convolution(128);
  grouped.groups = 4;
  grouped.width = 32;
  EXPECT_NEAR(seconds(grouped, kMultiprocessors), 4 * seconds(convolution(32), kMultiprocessors), 1e-9);
}

// 3200 products load 2 x 128 bytes each, at 128 bytes a clock of 1.755 GHz.
TEST(LaunchTime, OfAKernelOfOurOwnIsBoundBySharedMemoryOrBytes) {
  const DeviceSpeed h200 = device_speed("H200");
  StepLaunch launch{.kind = LaunchKind::kConvolution, .own_products = 3200};
  const double wave = 3200 * 2 / 1.755e9;
  EXPECT_NEAR(own_launch_seconds(launch, h200, 1), wave + 1.3e-6, 1e-12);
  EXPECT_NEAR(own_launch_seconds(launch, h200, kMultiprocessors), wave + 1.3e-6, 1e-12);
  EXPECT_NEAR(own_launch_seconds(launch, h200, kMultiprocessors + 1), 2 * wave + 1.3e-6, 1e-12);
  launch.out_bytes = 1e6;
  EXPECT_NEAR(own_launch_seconds(launch, h200, 100), 1e8 / (0.95 * 4.3e12) + 1.3e-6, 1e-9);
  launch.out_bytes = launch.own_products = 1;
  EXPECT_NEAR(own_launch_seconds(launch, h200, 1), 1.5e-6 + 1.3e-6, 1e-12);
}

TEST(LaunchTime, OfAKernelThatMayStartEarlyHasAShorterGapFromComputeCapability9On) {
  const auto gain = [](const char* device) {
    const auto seconds = [&](bool early) {
      return launch_time({.out_bytes = 1e7, .early = early}, device_speed(device), Precision::kBf16, 1).seconds;
    };
    return seconds(false) - seconds(true);
  };
  for (const char* device : {"H100", "H200", "B200"}) EXPECT_NEAR(gain(device), 0.5e-6, 1e-12) << device;
  for (const char* device : {"A100", "RTX4090", "RTX3090"}) EXPECT_EQ(gain(device), 0) << device;
}

TEST(LaunchTime, OnAProcessorIsTheRooflineLimit) {
  const DeviceSpeed processor{
      .name = "processor", .fp32_flops = 2, .bytes_per_s = 3, .flop_share = 0.5, .byte_share = 1};
  const auto time = [&](double flops, double bytes) {
    return launch_time({.kind = LaunchKind::kConvolution, .flops = flops, .in_bytes = bytes}, processor,
                       Precision::kFp32, 10, 0.5);
  };
  EXPECT_DOUBLE_EQ(time(4, 3).seconds, 20);
  EXPECT_STREQ(time(4, 3).bound, "flops");
  EXPECT_DOUBLE_EQ(time(1, 3).seconds, 10);
  EXPECT_STREQ(time(1, 3).bound, "bytes");
}

Model model_named(const std::string& name) {
  Config file = Config::file(concat(OWT_SOURCE_DIR, "/configs/models/", name, ".toml"));
  return read_model(file);
}

// No kernel started early when the steps were measured.
DeviceSpeed measured_h200() {
  DeviceSpeed h200 = device_speed("H200");
  h200.starts_early = false;
  return h200;
}

// The step stores all gradients, and masks and sums in kernels of their own, as the measured steps did.
StepEstimate estimate(const std::string& name, int64_t rows) {
  const Model model = model_named(name);
  const PlanRequest request{.step_rows = rows, .on = {Device::kCuda, Precision::kBf16}, .keeps_gradients = true};
  return estimate_step(measured_h200(), model, make_plan(model, request), false);
}

// The measured steps of docs/gpu.md, on one H200 in bf16.
TEST(LaunchTime, OfMeasuredStepsIsWithinTenPercent) {
  const struct {
    const char* model;
    int64_t rows;
    double measured_ms;
  } steps[] = {
      {"alexnet_owt", 128, 1.557}, {"alexnet_owt", 1024, 9.036}, {"vgg16", 64, 12.350}, {"cifar10_quick", 128, 0.236}};
  for (const auto& [model, rows, measured_ms] : steps)
    EXPECT_NEAR(estimate(model, rows).seconds() * 1e3 / measured_ms, 1, 0.1) << estimate(model, rows).table();
}

// The search for the batch from which on splitting does not pay relies on it.
TEST(LaunchTime, NeverFallsWithMoreRows) {
  const Model model = model_named("cifar10_quick");
  for (const StepEstimate::Launch& each : estimate("cifar10_quick", 1).launches)
    for (double rows = 1, before = 0; rows < 200; ++rows) {
      const double now = launch_time(each.launch, device_speed("H200"), Precision::kBf16, rows).seconds;
      ASSERT_GE(now, before) << each.launch.name << ' ' << each.launch.kernel << " at " << rows << " rows";
      before = now;
    }
}

TEST(LaunchTime, IsTheTimeOfALayerInPredictionsOfStrategies) {
  for (const char* name : {"alexnet_owt", "cifar10_quick", "resnet18"}) {
    const Model model = model_named(name);
    const auto compute = device_compute(measured_h200(), model, Precision::kBf16);
    const Plan alone = make_plan(model, {.step_rows = 128, .on = {Device::kCuda, Precision::kBf16}});
    EXPECT_NEAR(price_step(alone, Network(), *compute).step_s() / estimate(name, 128).seconds(), 1, 0.02) << name;
  }
}

}  // namespace
}  // namespace owt::launch_time_test

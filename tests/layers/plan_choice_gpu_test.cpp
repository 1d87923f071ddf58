#include "tests/simulated_gpu/device.h"

#include "layers/gpu/plan_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "layers/gpu/conv_plans.h"
#include "src/core/cuda.h"
#include "src/core/gpus.h"
#include "src/core/memory.h"
#include "src/system/plan_cache.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/temp_folder.h"

using testing::ElementsAre;

namespace owt::plan_choice_gpu_test {
namespace {

// Set before main(): this process must not use the cache of an earlier run.
struct OwnCache {
  OwnCache() { setenv("OWT_CACHE", folder.path().c_str(), 1); }
  TempFolder folder;
};
const OwnCache own_cache;

ConvGeometry geometry(int64_t extent) { return {extent, extent, 8, extent, extent, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1}; }

class PlanChoice : public testing::Test {
 protected:
  // Choices are stored, so each test uses a different extent.
  std::optional<ChosenPlan> choose(int64_t extent, bool accept, int64_t rows = 1) {
    return choose_plan(conv_forward_graph(geometry(extent), rows, DType::kF32), {}, setup_stream(Device::kCuda),
                       [&](const auto& memory, const auto& run) {
                         ++checked_;
                         EXPECT_NE(memory(kConvW), memory(kConvX));
                         run();
                         return accept;
                       });
  }

  int checked_ = 0;
};

TEST_F(PlanChoice, IsMadeOnce) {
  const auto first = choose(5, true);
  const int checked = checked_;
  const auto second = choose(5, true);
  ASSERT_TRUE(first && second);
  EXPECT_GT(checked, 1);
  EXPECT_EQ(checked_, checked);
  EXPECT_EQ(second->plan.json(), first->plan.json());
  EXPECT_GT(first->ms, 0);
}

TEST_F(PlanChoice, LeavesOutPlansThatFailTheCheck) {
  EXPECT_FALSE(choose(6, false));
  const int checked = checked_;
  EXPECT_FALSE(choose(6, false));
  EXPECT_GT(checked, 1);
  EXPECT_EQ(checked_, checked);
}

TEST_F(PlanChoice, WithoutMemoryForMeasuringIsCudnnsFirst) {
  simulated_gpu::set_memory(size_t{64} << 20);
  testing::internal::CaptureStderr();
  const auto unchecked =
      choose_plan(conv_forward_graph(geometry(64), 1024, DType::kF32), {}, setup_stream(Device::kCuda));
  const auto checked = choose(64, true, 1024);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("too little memory"));
  simulated_gpu::set_memory(size_t{8} << 30);
  ASSERT_TRUE(unchecked);
  EXPECT_EQ(unchecked->ms, 0);
  EXPECT_FALSE(checked);
}

// The engines of the simulated cuDNN's plans that were offered, if the engines in `taken` are taken. Engines 4, 5 and 6
// compile their plans; cuDNN falls back to 0 and 4.
std::vector<int> offered(const CudnnGraph& graph, const std::set<int>& taken, const PlanRules& rules = {}) {
  std::vector<int> engines;
  for_each_plan(graph, rules, PlanTarget::this_gpu(setup_stream(Device::kCuda)), [&](const CudnnPlan& plan) {
    const std::string json = plan.json(), name = "\"engine\":";
    engines.push_back(std::stoi(json.substr(json.find(name) + name.size())));
    return taken.count(engines.back()) > 0 ? PlanVerdict::kTaken : PlanVerdict::kRefused;
  });
  return engines;
}

CudnnGraph convolution() { return conv_forward_graph(geometry(5), 1, DType::kF32); }

CudnnGraph normalisation() {
  CudnnGraph graph;
  const auto x = graph.image(DType::kF32, {2, 3, 3, 8});
  const auto scale = graph.channels(DType::kF32, 8), mean = graph.channels(DType::kF32, 8);
  const auto inverse_std = graph.channels(DType::kF32, 8), bias = graph.channels(DType::kF32, 8);
  const auto epsilon = graph.number();
  graph.norm_forward(x, scale, bias, epsilon, mean, inverse_std, graph.image(DType::kF32, {2, 3, 3, 8}));
  return graph;
}

TEST(Plans, ThatCudnnFallsBackToAreNotCompiledOnceOneWasTaken) {
  EXPECT_THAT(offered(convolution(), {2}), ElementsAre(2, 1, 0));
  EXPECT_THAT(offered(convolution(), {0}), ElementsAre(2, 1, 0));
  EXPECT_THAT(offered(convolution(), {}), ElementsAre(2, 1, 0, 4));
}

TEST(Plans, TwoAtMostAreCompiled) {
  EXPECT_THAT(offered(normalisation(), {4, 5, 6}), ElementsAre(4, 5, 2, 1, 0));
  EXPECT_THAT(offered(normalisation(), {}), ElementsAre(4, 5, 2, 1, 0));
  EXPECT_THAT(offered(normalisation(), {}, {.most_compiled = 0}), ElementsAre(2, 1, 0));
}

TEST(Plans, EndWhenEnoughIsSaid) {
  int plans = 0;
  for_each_plan(convolution(), {}, PlanTarget::this_gpu(setup_stream(Device::kCuda)),
                [&](const CudnnPlan&) { return ++plans == 2 ? PlanVerdict::kEnough : PlanVerdict::kTaken; });
  EXPECT_EQ(plans, 2);
}

TEST(Rules, HaveATextOfTheirOwn) {
  const std::set<std::string> texts{PlanRules{}.text(), PlanRules{.deterministic = false}.text(),
                                    PlanRules{.tensor_cores = false}.text(), PlanRules{.workspace_limit = 1}.text(),
                                    PlanRules{.most_compiled = 1}.text()};
  EXPECT_EQ(texts.size(), 5u);
}

int remembered_about(const std::string& what) {
  int count = 0;
  for (const auto& [key, text] : PlanCache::process().known()) count += key.find(what) != std::string::npos;
  return count;
}

TEST(ConvPlans, OfTheOtherModeAreNotReused) {
  ConvGeometry first = geometry(9);
  first.in_c = 3;
  const ConvEpilogue epilogue{.bias = true};
  const int presentations = remembered_about("presentation"), epilogues = remembered_about("epilogue");
  choose_conv_plans({Precision::kBf16, true}, first, 2, epilogue);
  const int in_one_mode = remembered_about("epilogue") - epilogues;
  EXPECT_GT(in_one_mode, 0);
  choose_conv_plans({Precision::kBf16, true}, first, 2, epilogue);
  EXPECT_EQ(remembered_about("presentation"), presentations + 1);
  EXPECT_EQ(remembered_about("epilogue"), epilogues + in_one_mode);
  choose_conv_plans({Precision::kBf16, false}, first, 2, epilogue);
  EXPECT_EQ(remembered_about("presentation"), presentations + 2);
  EXPECT_EQ(remembered_about("epilogue"), epilogues + 2 * in_one_mode);
}

// A trained convolution needs additional plans.
TEST(ConvPlans, OfAFrozenConvolutionHaveNoneForTheWeightsGradient) {
  ConvGeometry first = geometry(13);
  first.in_c = 3;
  const auto graph = conv_weight_gradient_graph(first, 2, DType::kBF16).text();
  const int presentations = remembered_about("presentation");
  const ConvPlans frozen = choose_conv_plans({Precision::kBf16, true}, first, 2, {.bias = true}, false);
  EXPECT_FALSE(frozen.weight_gradient.has_value());
  EXPECT_TRUE(frozen.data_gradient.has_value());
  EXPECT_EQ(remembered_about(graph), 0);
  EXPECT_TRUE(choose_conv_plans({Precision::kBf16, true}, first, 2, {.bias = true}).weight_gradient.has_value());
  EXPECT_GT(remembered_about(graph), 0);
  EXPECT_EQ(remembered_about("presentation"), presentations + 2);
}

TEST(Fastest, IsFoundAmongTheBestFourMeasuredTwice) {
  const std::vector<double> again{9, 9, 2.5, 9, 4, 2};
  std::vector<size_t> asked;
  const Fastest best = fastest_of({5, 3, 4, 9, 3.5, 6}, [&](size_t i) {
    asked.push_back(i);
    return again[i];
  });
  EXPECT_THAT(asked, ElementsAre(1, 4, 2, 0));  // not the last, which would have won
  EXPECT_EQ(best.index, 2u);
  EXPECT_EQ(best.ms, 2.5);
}

TEST(Fastest, KeepsTheFirstTimeWhereTheSecondIsWorse) {
  const Fastest best = fastest_of({2, 1}, [](size_t) { return 7.0; });
  EXPECT_EQ(best.index, 1u);
  EXPECT_EQ(best.ms, 1);
}

// Work queued by time_work() for a GPU: runs of the work, and bytes written in addition.
struct Queued {
  int runs;
  size_t zeroed;
};

Queued queued_by_time_work(const Stream& stream) {
  Queued queued{0, simulated_gpu::zeroed_bytes()};
  const Tensor values({4}, DType::kF32, Device::kCuda);
  time_work(stream, [&] {
    ++queued.runs;
    OWT_CUDA(cudaMemsetAsync(const_cast<void*>(values.raw()), 1, 4, cuda_stream(stream)));
  });
  queued.zeroed = simulated_gpu::zeroed_bytes() - queued.zeroed;
  return queued;
}

TEST(TimedWork, OverwritesTheL2CacheBeforeEveryRunThatCounts) {
  const Stream stream(Device::kCuda);
  queued_by_time_work(stream);
  const Queued queued = queued_by_time_work(stream);
  cudaDeviceProp gpu{};
  OWT_CUDA(cudaGetDeviceProperties(&gpu, 0));
  EXPECT_GE(queued.runs, 2 + 5);
  EXPECT_EQ(queued.zeroed, static_cast<size_t>(queued.runs - 2) * 2 * static_cast<size_t>(gpu.l2CacheSize));
}

TEST(TimedWork, WarmsUpAGpuOnce) {
  constexpr int kGpus = 16;  // no other test uses the last one
  simulated_gpu::set_devices(kGpus);
  use_gpu(Cuda{}, kGpus - 1);
  const int first = queued_by_time_work(Stream(Device::kCuda)).runs;
  const int second = queued_by_time_work(Stream(Device::kCuda)).runs;
  const int third = queued_by_time_work(Stream(Device::kCuda)).runs;
  use_gpu(Cuda{}, 0);
  simulated_gpu::set_devices(1);
  EXPECT_GT(first, second);
  EXPECT_EQ(second, third);
}

TEST(TimedWork, SaysThatItHasTooLittleMemory) {
  const Stream stream(Device::kCuda);
  simulated_gpu::set_memory(size_t{1} << 16);
  EXPECT_THROW(queued_by_time_work(stream), OutOfMemory);
  simulated_gpu::set_memory(size_t{8} << 30);
}

std::string key_that_ends(const std::string& what) {
  for (const auto& [key, text] : PlanCache::process().known())
    if (key.ends_with(what)) return key;
  return "";
}

TEST(Remembered, AsksOnce) {
  int asked = 0;
  const auto measure = [&]() -> std::string { return ++asked == 1 ? "first" : "second"; };
  EXPECT_EQ(remembered("a question", measure), "first");
  EXPECT_EQ(remembered("a question", measure), "first");
  EXPECT_EQ(remembered("another question", measure), "second");
}

TEST(Remembered, AnOutcomeThatIsEmptyIsForgottenWithTheProcess) {
  int asked = 0;
  const auto measure = [&]() -> std::string { return ++asked == 1 ? "" : "measured"; };
  EXPECT_EQ(remembered("a question without an answer", measure), "");
  EXPECT_EQ(remembered("a question without an answer", measure), "");
  EXPECT_FALSE(PlanCache(PlanCache::user_folder()).find(key_that_ends("a question without an answer")));
  remembered("a question with an answer", measure);
  EXPECT_EQ(PlanCache(PlanCache::user_folder()).find(key_that_ends("a question with an answer")), "measured");
}

}  // namespace
}  // namespace owt::plan_choice_gpu_test

#include "layers/plan_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "layers/conv_plans.h"
#include "src/core/cuda.h"
#include "src/core/memory.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/temp_folder.h"

namespace owt {
namespace {

// Before main(): the cache of this process must not be that of an earlier run.
struct OwnCache {
  OwnCache() { setenv("OWT_CACHE", folder.path().c_str(), 1); }
  TempFolder folder;
};
const OwnCache own_cache;

ConvGeometry geometry(int64_t extent) { return {extent, extent, 8, extent, extent, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1}; }

class PlanChoice : public testing::Test {
 protected:
  // Choices are remembered, so each test has an extent of its own.
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

TEST(Remembered, AsksOnce) {
  int asked = 0;
  const auto measure = [&]() -> std::string { return ++asked == 1 ? "first" : "second"; };
  EXPECT_EQ(remembered("a question", measure), "first");
  EXPECT_EQ(remembered("a question", measure), "first");
  EXPECT_EQ(remembered("another question", measure), "second");
}

TEST(GpuScratch, KeepsWhatWasHandedOutWhenItGrows) {
  const Tensor small = gpu_scratch(1000), same = gpu_scratch(500);
  EXPECT_EQ(same.raw(), small.raw());
  const Tensor large = gpu_scratch(small.bytes() + 1);
  EXPECT_GE(large.bytes(), small.bytes() + 1);
  EXPECT_NE(large.raw(), small.raw());
  OWT_CUDA(cudaMemsetAsync(const_cast<void*>(small.raw()), 0, static_cast<size_t>(small.bytes()),
                           cuda_stream(setup_stream(Device::kCuda))));
  setup_stream(Device::kCuda).synchronize();
}

}  // namespace
}  // namespace owt

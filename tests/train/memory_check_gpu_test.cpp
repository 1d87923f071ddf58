// The check of GPU memory before a run.
#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/gpus.h"
#include "src/predict/memory_need.h"
#include "src/train/memory_check.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/message_of.h"
#include "tests/support/models.h"
#include "tests/support/runs.h"

namespace owt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kWholeMemory = int64_t{8} << 30;
const MemoryUse kTraining{.batches = 2 * kLoadedBatches};

class MemoryOfGpus : public ::testing::Test {
 protected:
  ~MemoryOfGpus() override {
    simulated_gpu::set_devices(1);
    simulated_gpu::set_memory(kWholeMemory);
  }
  // Limits the free memory of each GPU, whatever is in use there.
  static void leave_free(int64_t bytes) {
    simulated_gpu::set_memory(static_cast<size_t>(bytes + kWholeMemory - free_memory_of_gpu(0)));
  }
  static Plan plan_of(int ranks, int64_t step_rows) {
    PlanRequest request;
    request.ranks = ranks;
    request.step_rows = step_rows;
    request.on.device = Device::kCuda;
    return make_plan(tiny_model(), request);
  }
  static int64_t need_of_rank(const Plan& plan) { return rank_bytes(plan, Mode::kTrain, 0); }
  static std::string refusal(const Plan& plan) {
    return message_of([&] { check_memory(plan, kTraining); });
  }
};

TEST_F(MemoryOfGpus, RanksThatShareAGpuAddUp) {
  const Plan plan = plan_of(2, 1000);
  leave_free(2 * need_of_rank(plan));
  EXPECT_THAT(refusal(plan), IsEmpty());
  simulated_gpu::set_memory(kWholeMemory);
  leave_free(2 * need_of_rank(plan) - 1);
  EXPECT_THAT(refusal(plan), AllOf(HasSubstr("2 workers on GPU 0 ("), HasSubstr("for steps of 1000 images, and this "),
                                   HasSubstr("this GPU has"), HasSubstr("steps of 998 images would fit")));
}

TEST_F(MemoryOfGpus, RanksWithAGpuEachAreHeldAgainstTheirOwn) {
  simulated_gpu::set_devices(2);
  const Plan plan = plan_of(2, 1000);
  leave_free(need_of_rank(plan));
  EXPECT_THAT(refusal(plan), IsEmpty());
  simulated_gpu::set_memory(kWholeMemory);
  leave_free(need_of_rank(plan) - 1);
  EXPECT_THAT(refusal(plan), HasSubstr("the work on GPU 0 ("));
}

// Without a loader a batch is copied from the host when it is needed.
TEST_F(MemoryOfGpus, WithoutALoaderNoBatchesCount) {
  const Plan plan = plan_of(1, 1000);
  leave_free(need_of_rank(plan) - step_bytes(plan, {}, 0));
  EXPECT_THAT(message_of([&] { check_memory(plan, MemoryUse{}); }), IsEmpty());
}

TEST_F(MemoryOfGpus, WhatIsRefusedWouldNotHaveRun) {
  // No other test has batches of 91 images, so the algorithms for these products are still to be measured, which needs
  // memory.
  const Overrides on_gpu{{"run.device", "cuda"}, {"data.batch", "91"}};
  const Plan plan = small_settings(kSmallRecipe, on_gpu).plan_to_run();
  leave_free(need_of_rank(plan) - 1);
  EXPECT_THAT(refusal(plan), HasSubstr("the work on GPU 0 ("));
  EXPECT_THAT(message_of([&] { run_small(kSmallRecipe, 2, on_gpu); }), HasSubstr("out of memory on the GPU"));
}

}  // namespace
}  // namespace owt

// Whole steps and runs with one GPU for each rank: NCCL's collectives beside the ranks' other work.
#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "src/comm/on_host.h"
#include "src/comm/threads.h"
#include "src/commands/run.h"
#include "src/plan/plan_rows.h"
#include "src/system/check.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::run_gpu_test {
namespace {

using ::testing::HasSubstr;

// Three steps per epoch, of 24, 24 and 4 rows.
constexpr int64_t kSteps = 4;
constexpr int64_t kRecordedSteps = 7;  // the third and later ones of a size are recorded or replayed

Overrides on_gpus(int workers, const std::string& strategy, const std::string& precision = "fp32") {
  return {{"run.device", "cuda"},
          {"data.train_images", "52"},
          {"run.precision", precision},
          {"parallel.workers", std::to_string(workers)},
          {"parallel.strategy", strategy}};
}

class SeveralGpus : public ::testing::Test {
 protected:
  SeveralGpus() { simulated_gpu::set_devices(3); }
  ~SeveralGpus() override { simulated_gpu::set_devices(1); }
};

TEST_F(SeveralGpus, LearnWhatOneLearnsUnderEveryStrategy) {
  const SmallRun one = run_small(kSmallRecipe, kSteps, on_gpus(1, "owt-a"));
  for (const char* strategy : {"dp", "dp-zero", "dp-star", "owt-a", "owt-b", "owt-c", "owt-d", "mp"}) {
    const SmallRun several = run_small(kSmallRecipe, kSteps, on_gpus(3, strategy));
    ASSERT_EQ(several.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(several.losses[i], one.losses[i], 1e-4 * one.losses[i]) << strategy << ", step " << i;
  }
}

// NCCL's collectives are in each rank's graph, and the update of the dense layers runs beside the others' backward
// pass.
TEST_F(SeveralGpus, LearnTheSameBitsWhereTheirStepsAreRecorded) {
  simulated_gpu::set_devices(4);
  const std::pair<const char*, const char*> cases[] = {
      {"dp", "0"},    {"dp-zero", "0"}, {"dp-star", "0"}, {"owt-a", "0"}, {"owt-b", "0"},
      {"owt-c", "0"}, {"owt-d", "0"},   {"mp", "0"},      {"owt-c", "2"}, {"mp", "2"}};
  for (const auto& [strategy, model_ranks] : cases) {
    SCOPED_TRACE(concat(strategy, ", groups of ", model_ranks));
    Overrides plain = on_gpus(4, strategy, "bf16");
    plain.emplace_back("parallel.model_ranks", model_ranks);
    Overrides recorded = plain;
    recorded.emplace_back("run.cuda_graph_collectives", "true");
    const SmallRun wanted = run_small(kSmallRecipe, kRecordedSteps, plain, 0);
    const SmallRun found = run_small(kSmallRecipe, kRecordedSteps, recorded, 0);
    EXPECT_EQ(found.losses, wanted.losses);
    EXPECT_EQ(found.weights, wanted.weights);
  }
}

// Not if activations and gradients are sent in bf16, and not in a timed step.
TEST_F(SeveralGpus, RecordTheirCollectivesOnlyWhereThatIsAskedForAndCanBe) {
  struct Case {
    const char *asked, *wire;
    bool timed;
    size_t graphs;
  };
  for (const Case& c : {Case{"false", "fp32", false, 0}, Case{"true", "fp32", false, 2}, Case{"true", "bf16", false, 0},
                        Case{"true", "fp32", true, 0}}) {
    SCOPED_TRACE(concat("asked ", c.asked, ", wire ", c.wire, ", timed ", c.timed));
    Overrides changes = on_gpus(2, "owt-a");
    changes.emplace_back("run.cuda_graph_collectives", c.asked);
    changes.emplace_back("parallel.wire", c.wire);
    const Settings settings = small_settings(kSmallRecipe, changes);
    const Plan plan = settings.plan_to_run();
    run_ranks(
        2, 1,
        [&](Communicator& comm) {
          Worker worker(settings, plan, comm);
          Step& step = worker.step;
          Profiler& profiler = worker.profiler;
          profiler.enable(c.timed);
          worker.model.initialize(1);
          const Batch batch = on_all_hosts(comm, [&] {
            return made_up_batch(settings.model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
          });
          for (int i = 0; i < 2; ++i) {
            profiler.begin_step();
            step.train(batch, i, {0.01, 0.01}, false);
            profiler.end_step();
          }
          on_all_hosts(comm, [] {});  // all ranks have recorded
          const auto graphs = simulated_gpu::live_graphs();
          EXPECT_EQ(graphs.size(), c.graphs);
          for (const auto& graph : graphs)
            EXPECT_EQ(std::count_if(graph.begin(), graph.end(), [](const auto& node) { return node.name == "nccl"; }),
                      static_cast<std::ptrdiff_t>(plan.transfers.size()));
          on_all_hosts(comm, [] {});  // all ranks have looked
        },
        Device::kCuda);
  }
}

// Two groups of two: communicators of rows, of columns and of all, on one GPU's stream each.
TEST_F(SeveralGpus, LearnInGrids) {
  simulated_gpu::set_devices(4);
  const SmallRun one = run_small(kSmallRecipe, kSteps, on_gpus(1, "owt-a"));
  for (const char* strategy : {"owt-a", "owt-c", "owt-d", "mp"}) {
    Overrides grid = on_gpus(4, strategy);
    grid.emplace_back("parallel.model_ranks", "2");
    const SmallRun several = run_small(kSmallRecipe, kSteps, grid);
    ASSERT_EQ(several.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(several.losses[i], one.losses[i], 1e-4 * one.losses[i]) << strategy << ", step " << i;
  }
}

TEST_F(SeveralGpus, LearnInBf16) {
  const SmallRun one = run_small(kSmallRecipe, kSteps, on_gpus(1, "owt-a", "bf16"));
  const SmallRun several = run_small(kSmallRecipe, kSteps, on_gpus(2, "owt-c", "bf16"));
  for (size_t i = 0; i < 3; ++i)  // the difference grows from step to step
    EXPECT_NEAR(several.losses[i], one.losses[i], 0.03 * one.losses[i]) << "step " << i;
}

// Between the steps memory is allocated and freed, which must not meet a collective that only some ranks have queued.
TEST_F(SeveralGpus, EvaluateSaveAndResume) {
  const TempFolder folder;
  TrainOptions options;
  options.out = folder.path();
  options.threads = 1;
  Overrides changes = on_gpus(3, "owt-c");
  changes.emplace_back("schedule.epochs", "2");
  const TrainOutcome first = train(small_settings(kSmallRecipe, changes), options);
  EXPECT_TRUE(first.finished);
  EXPECT_EQ(first.evaluation.images, 50);

  changes.emplace_back("schedule.epochs", "3");
  options.resume = "auto";
  const TrainOutcome longer = train(small_settings(kSmallRecipe, changes), options);
  EXPECT_TRUE(longer.finished);
  EXPECT_EQ(longer.evaluation.images, 50);
}

// Only the first replica gathers and writes.
TEST_F(SeveralGpus, InAGridEvaluateSaveAndResumeWithOthers) {
  simulated_gpu::set_devices(4);
  const TempFolder folder;
  TrainOptions options;
  options.out = folder.path();
  options.threads = 1;
  Overrides changes = on_gpus(4, "owt-d");
  changes.emplace_back("parallel.model_ranks", "2");
  changes.emplace_back("run.checkpoint_every_steps", "1");
  changes.emplace_back("schedule.epochs", "1");
  EXPECT_EQ(train(small_settings(kSmallRecipe, changes), options).evaluation.images, 50);
  changes.emplace_back("schedule.epochs", "2");
  changes.emplace_back("parallel.strategy", "owt-a");
  changes.emplace_back("parallel.model_ranks", "4");
  options.resume = "auto";
  EXPECT_TRUE(train(small_settings(kSmallRecipe, changes), options).finished);
}

TEST_F(SeveralGpus, TooFewForTheWorkersIsAnErrorThatNamesTheCure) {
  EXPECT_THAT(message_of([] { run_small(kSmallRecipe, 1, on_gpus(4, "owt-a")); }),
              HasSubstr("4 workers on 3 GPUs; use 3 workers"));
}

TEST_F(SeveralGpus, WithoutInstructionsForThePrecisionAreRefusedBeforeTheRunBegins) {
  const TempFolder folder;
  TrainOptions options;
  options.out = folder.file("run");
  options.threads = 1;
  simulated_gpu::set_capability(75);
  EXPECT_THAT(message_of([&] { train(small_settings(kSmallRecipe, on_gpus(2, "dp", "bf16")), options); }),
              HasSubstr("precision bf16 needs a GPU of compute capability 8.0 or newer; for "));
  simulated_gpu::set_capability(90);
  EXPECT_FALSE(std::filesystem::exists(options.out));
}

}  // namespace
}  // namespace owt::run_gpu_test

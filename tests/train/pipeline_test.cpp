// A network in stages on several ranks gives the same losses and weights as one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/plan/plan_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"

namespace owt::pipeline_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 8;

void expect_near(const std::vector<double>& losses, const std::vector<double>& wanted) {
  ASSERT_EQ(losses.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 1e-4 * wanted[i]) << "step " << i;
}

Overrides pipeline(const char* workers, const char* schedule, const char* micro_batches) {
  return {{"parallel.workers", workers},
          {"parallel.strategy", "pipeline"},
          {"pipeline.schedule", schedule},
          {"pipeline.micro_batches", micro_batches}};
}

TEST(Pipeline, LearnsWhatOneRankLearns) {
  const SmallRun one = run_small(kSmallRecipe, kSteps);
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const char* workers : {"2", "3", "4"})
      for (const char* micro_batches : {"1", "2", "3", "8"}) {
        SCOPED_TRACE(testing::Message() << schedule << ", " << workers << " stages, " << micro_batches);
        expect_near(run_small(kSmallRecipe, kSteps, pipeline(workers, schedule, micro_batches)).losses, one.losses);
      }
}

TEST(Pipeline, HasReplicasThatSumTheirGradients) {
  const SmallRun one = run_small(kSmallRecipe, kSteps);
  Overrides grid = pipeline("4", "1f1b", "3");
  grid.emplace_back("parallel.model_ranks", "2");
  expect_near(run_small(kSmallRecipe, kSteps, grid).losses, one.losses);
}

TEST(Pipeline, BeginsItsStagesWhereTheRecipeSays) {
  const SmallRun one = run_small(kSmallRecipe, kSteps);
  Overrides changes = pipeline("3", "1f1b", "4");
  changes.emplace_back("pipeline.stages", "[\"norm1\", \"fc2\"]");
  const SmallRun run = run_small(kSmallRecipe, kSteps, changes);
  expect_near(run.losses, one.losses);
  const Plan plan = small_settings(kSmallRecipe, changes).plan_to_run();
  EXPECT_EQ(plan.stages[1].begin, 2);
  EXPECT_EQ(plan.layer(plan.stages[2].begin).name, "fc2");
  // Rank 0 has only the weights of its own stage, with the same updates as on one rank.
  const std::vector<float>&learned = run.weights.at("conv1.weight"), &wanted = one.weights.at("conv1.weight");
  ASSERT_EQ(learned.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(learned[i], wanted[i], 1e-4) << i;
  EXPECT_TRUE(run.weights.at("fc1.weight").empty());
}

// With 24 rows four micro-batches have five rows, and one has four. The gradient from the next stage is as long as the
// output of this stage's last layer, which a sum of branches copies whole.
TEST(Pipeline, TakesMicroBatchesOfUnlikeRowsThroughResidualBlocksAtTheEndsOfStages) {
  const std::string recipe =
      recipe_of("[3, 8, 8]", "train_images = 48\nbatch = 24\naugment = { scale = 0.02, mean = \"channel\" }", R"(
  { name = "conv", type = "conv", out = 6, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "block1", type = "residual", relu = false, body = [
    { name = "conv", type = "conv", out = 6, kernel = 3, pad = 1, init = { type = "msra" } },
    { name = "relu", type = "relu" } ] },
  { name = "block2", type = "residual", relu = false, body = [
    { name = "conv", type = "conv", out = 6, kernel = 3, pad = 1, init = { type = "msra" } },
    { name = "relu", type = "relu" } ] },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc", type = "dense", out = 10 })");
  Overrides changes = pipeline("2", "1f1b", "5");
  changes.emplace_back("pipeline.stages", "[\"block2\"]");
  expect_near(run_small(recipe, kSteps, changes).losses, run_small(recipe, kSteps).losses);
}

TEST(Pipeline, SendsTheBytesOfThePlan) {
  for (const char* model_ranks : {"4", "2"}) {
    Overrides changes = pipeline("4", "1f1b", "3");
    changes.emplace_back("parallel.model_ranks", model_ranks);
    const SmallRun run = run_small(kSmallRecipe, 4, changes);
    const Plan plan = small_settings(kSmallRecipe, changes).plan_to_run();
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(run.bytes[static_cast<size_t>(rank)], 4 * traffic(plan, StepKind::kSynchronous, rank).out)
          << "rank " << rank;
  }
}

TEST(Pipeline, SaysWhatCannotBe) {
  const auto message = [](Overrides changes) {
    return message_of([&] { small_settings(kSmallRecipe, changes).plan_to_run(); });
  };
  EXPECT_EQ(message(pipeline("4", "1f1b", "24")), "");
  EXPECT_THAT(message(pipeline("4", "1f1b", "25")), HasSubstr("pipeline.micro_batches is 25"));
  EXPECT_THAT(message(pipeline("14", "1f1b", "1")), HasSubstr("cannot be cut into 14 stages"));
  Overrides changes = pipeline("2", "1f1b", "1");
  changes.emplace_back("pipeline.stages", "[\"relu1\"]");
  EXPECT_THAT(message(changes), HasSubstr("no stage can begin there"));
  changes.back().second = "[\"conv7\"]";
  EXPECT_THAT(message(changes), HasSubstr("no layer 'conv7'"));
  changes.back().second = "[\"norm1\", \"fc2\"]";
  EXPECT_THAT(message(changes), HasSubstr("but 2 stages"));
  changes.front().second = "3";
  EXPECT_EQ(message(changes), "");
}

}  // namespace
}  // namespace owt::pipeline_test

// run.canonical: the same bits of all weights, whatever the strategy and the number of ranks.
#include <gtest/gtest.h>

#include "src/core/canonical.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/strategies.h"

namespace owt::canonical_runs_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 7;

SmallRun run(const std::string& recipe, const Overrides& changes) {
  return run_small(recipe, kSteps, merged({{"run.canonical", "true"}}, changes));
}

Overrides with(Strategy strategy, int ranks) {
  return {{"parallel.strategy", name_of(strategy)}, {"parallel.workers", std::to_string(ranks)}};
}

void expect_same_bits(const SmallRun& one, const SmallRun& many, const std::string& what) {
  ASSERT_EQ(many.losses.size(), one.losses.size()) << what;
  // The losses of the rows have the same bits, but are added in another order.
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(many.losses[i], one.losses[i], 1e-12) << what;
  EXPECT_EQ(many.whole_weights, one.whole_weights) << what;
  EXPECT_EQ(many.bytes, many.planned_of_ranks) << what;
}

// Dropout and augmentation are on. The fifth step has four of the 100 images, so some ranks have none. The outputs of
// three split layers cannot be dealt evenly to three or eight ranks.
TEST(CanonicalRuns, HaveTheSameBitsUnderAllStrategies) {
  const SmallRun one = run(kSmallRecipe, {});
  for (const Strategy strategy : all_strategies())
    for (const int ranks : {2, 3, 8}) {
      if (facts_of(strategy).rounds == Rounds::kEqualParts && ranks > 4) continue;  // more stages than blocks of layers
      expect_same_bits(one, run(kSmallRecipe, with(strategy, ranks)), concat(name_of(strategy), ' ', ranks));
    }
}

TEST(CanonicalRuns, HaveTheSameBitsInGridsWithSharesInMicroBatchesAndWithAdamW) {
  const SmallRun one = run(kSmallRecipe, {});
  const auto expect = [&](const std::string& what, const SmallRun& single, Overrides changes) {
    expect_same_bits(single, run(kSmallRecipe, std::move(changes)), what);
  };
  for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtC, Strategy::kModelParallel, Strategy::kPipeline})
    expect(name_of(strategy), one, merged(with(strategy, 4), {{"parallel.model_ranks", "2"}}));
  for (const Strategy strategy : {Strategy::kDataParallel, Strategy::kOwtB}) {
    expect("shares", one, merged(with(strategy, 3), {{"parallel.shares", "[3, 1, 2]"}}));
    expect("micro-batches", one, merged(with(strategy, 2), {{"data.accumulate", "3"}}));
    expect("adamw", run(kSmallRecipe, with_optimizer("adamw")), merged(with(strategy, 3), with_optimizer("adamw")));
  }
}

// So many that ordinary runs would leave the logits on their ranks, and sum the exponentials of each rank's classes.
TEST(CanonicalRuns, HaveTheSameBitsWithManyClasses) {
  std::string recipe = kSmallRecipe;
  recipe.replace(recipe.find("classes = 10"), 12, "classes = 100");
  recipe.replace(recipe.find("out = 10\n"), 9, "out = 100\n");
  const SmallRun one = run(recipe, {});
  for (const Strategy strategy : {Strategy::kOwtA, Strategy::kOwtD, Strategy::kModelParallel})
    expect_same_bits(one, run(recipe, with(strategy, 3)), name_of(strategy));
}

// Ordinary runs of mp split these convolutions by channels.
TEST(CanonicalRuns, HaveTheSameBitsWhereConvolutionsCouldBeSplit) {
  const std::string recipe = recipe_of("[3, 8, 8]", "train_images = 100\nbatch = 40", R"(
  { name = "conv1", type = "conv", out = 12, kernel = 3, pad = 1 },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 10, kernel = 3 },
  { name = "pool", type = "max_pool", kernel = 2 },
  { name = "fc1", type = "dense", out = 36 },
  { name = "relu2", type = "relu" },
  { name = "fc2", type = "dense", out = 10 })",
                                       1e-5);
  const SmallRun one = run(recipe, {});
  for (const Strategy strategy : all_strategies())
    expect_same_bits(one, run(recipe, with(strategy, 3)), name_of(strategy));
}

// Blocks of four rows, and groups of rows that are normalised together.
TEST(CanonicalRuns, HaveTheSameBitsWithNormalisationAndResiduals) {
  const std::string recipe = recipe_of("[3, 8, 8]", "train_images = 150\nbatch = 70", R"(
  { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1, bias = false },
  { name = "norm", type = "batch_norm", rows = 8 },
  { name = "relu", type = "relu" },
  { name = "sum", type = "residual", body = [
    { name = "conv", type = "conv", out = 8, kernel = 3, pad = 1, bias = false },
    { name = "norm", type = "batch_norm", rows = 16 },
    { name = "path", type = "drop_path", rate = 0.2 } ] },
  { name = "se", type = "scale", body = [
    { name = "pool", type = "global_avg_pool" },
    { name = "fc", type = "dense", out = 8 },
    { name = "gate", type = "activation", kind = "sigmoid" } ] },
  { name = "dilated", type = "conv", out = 8, kernel = 3, pad = 2, dilation = 2 },
  { name = "pool", type = "global_avg_pool" },
  { name = "fc1", type = "dense", out = 40 },
  { name = "tanh", type = "activation", kind = "tanh" },
  { name = "fc2", type = "dense", out = 10 })");
  EXPECT_EQ(canonical_rows(70), 4);
  const SmallRun one = run(recipe, {});
  for (const Strategy strategy : all_strategies())
    expect_same_bits(one, run(recipe, with(strategy, 3)), name_of(strategy));
}

// Ordinary sums round otherwise.
TEST(CanonicalRuns, FollowARunWithOrdinarySums) {
  const SmallRun ordinary = run_small(kSmallRecipe, kSteps), canonical = run(kSmallRecipe, {});
  ASSERT_EQ(canonical.losses.size(), ordinary.losses.size());
  for (size_t i = 0; i < ordinary.losses.size(); ++i) EXPECT_NEAR(canonical.losses[i], ordinary.losses[i], 1e-5);
  EXPECT_NE(canonical.whole_weights, ordinary.whole_weights);
}

TEST(CanonicalRuns, RefuseWhatDependsOnTheWorkersInAnotherWay) {
  const auto message = [](const Overrides& changes, const std::string& recipe = kSmallRecipe) {
    return message_of([&] {
      small_settings(recipe, merged({{"run.canonical", "true"}, {"parallel.workers", "2"}}, changes)).plan_to_run();
    });
  };
  const std::string begin = "run.canonical gives the same bits with every number of workers, but ";
  EXPECT_EQ(message({{"run.precision", "bf16"}}), begin + "its sums are of f32; use --precision fp32");
  EXPECT_EQ(message({{"optimizer.clip", "1"}}),
            begin + "norms of all gradients are not canonical sums yet (optimizer.clip, optimizer.type)");
  EXPECT_EQ(message({{"loss.sample", "0.5"}}),
            begin + "with loss.sample the classes of a step depend on the parts of the last layer");
  EXPECT_EQ(message({{"parallel.wire", "bf16"}}), begin + "parallel.wire = \"bf16\" rounds the sums; leave it out");
  EXPECT_EQ(message({{"parallel.average_every", "2"}}),
            begin + "with parallel.average_every each worker trains on its own; leave it out");
  EXPECT_EQ(message({{"parallel.dense_update", "round"}, {"parallel.strategy", "owt-b"}}),
            begin + "the number of rounds depends on the workers (parallel.dense_update); use \"step\"");
  EXPECT_EQ(message({{"parallel.strategy", "ps"}, {"ps.delay", "1"}}),
            begin + "ps.delay, pushes, filters and tolerate_loss change what an update sums; leave them out");
  EXPECT_EQ(message({{"parallel.strategy", "pipeline"}, {"pipeline.schedule", "pipedream"}}),
            begin + "the weights are updated after every micro-batch (pipeline.schedule); use \"1f1b\"");
  EXPECT_EQ(message({{"parallel.strategy", "ps"}, {"ps.servers", "1"}, {"ps.tolerate_loss", "true"}}),
            begin + "ps.delay, pushes, filters and tolerate_loss change what an update sums; leave them out");
  EXPECT_THAT(message({{"data.batch", ""}, {"data.batch_per_rank", "8"}}),
              HasSubstr("but with data.batch_per_rank the batch depends on it; give data.batch"));
  EXPECT_THAT(message({{"parallel.scale_lr", "linear"}}),
              HasSubstr("but with parallel.scale_lr the learning rate depends on it; leave it out"));
  EXPECT_EQ(message({}, cosine_recipe()),
            begin + "layer 'fc3' is of type 'cosine', whose gradients are not canonical sums yet");
  EXPECT_EQ(message({}, recipe_of("[3, 8, 8]", "batch = 8", R"(
  { name = "norm", type = "batch_norm" },
  { name = "fc", type = "dense", out = 10 })")),
            begin + "layer 'norm' normalises over rows that depend on the workers; give it e.g. rows = 32");
  EXPECT_EQ(message({}, recipe_of("[3, 8, 8]", "batch = 8", R"(
  { name = "norm", type = "layer_norm" },
  { name = "fc", type = "dense", out = 10 })")),
            begin + "layer 'norm' is of type 'layer_norm', whose gradients are not canonical sums yet");
}

}  // namespace
}  // namespace owt::canonical_runs_test

// Convolutions that are split by their channels (mp), in real steps.
#include <gtest/gtest.h>

#include "src/files/safetensors.h"
#include "tests/support/harness.h"
#include "tests/support/using_conv_algorithm.h"
#include "tests/support/whole_runs.h"

namespace owt::split_channels_test {
namespace {

// Channel counts that split unevenly over 2, 3 and 4 ranks. The normalisation and the pools work on parts; lrn and the
// dropout before fc1 work on whole images. Two dense layers follow.
constexpr const char* kLayers = R"(
  { name = "conv1", type = "conv", out = 11, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "norm1", type = "batch_norm" },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 2, stride = 2 },
  { name = "conv2", type = "conv", out = 7, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "relu2", type = "relu" },
  { name = "lrn2", type = "lrn", size = 3 },
  { name = "conv3", type = "conv", out = 9, kernel = 3, stride = 2, pad = 1, init = { type = "msra" } },
  { name = "relu3", type = "relu" },
  { name = "drop3", type = "dropout", rate = 0.1 },
  { name = "fc1", type = "dense", out = 13 },
  { name = "relu4", type = "relu" },
  { name = "drop4", type = "dropout", rate = 0.2 },
  { name = "fc2", type = "dense", out = 10 })";
const std::string kRecipe = recipe_of(
    "[3, 12, 12]",
    "train_images = 100\nside = 12\nbatch = 24\naugment = { scale = 0.02, mirror = true, mean = \"channel\" }", kLayers,
    0.02);

class SplitChannels : public DeviceTest {
 protected:
  Overrides mp(int workers, Overrides changes = {}) const {
    changes.insert(changes.end(), {{"parallel.workers", std::to_string(workers)},
                                   {"parallel.strategy", "mp"},
                                   {"run.device", name_of(device())}});
    return changes;
  }
  int64_t steps() const { return device() == Device::kCpu ? 24 : 6; }
};
INSTANTIATE_TEST_SUITE_P(Devices, SplitChannels, ::testing::ValuesIn(devices()), device_name);

void expect_same_losses(const SmallRun& one, const SmallRun& many, double tolerance) {
  ASSERT_EQ(one.losses.size(), many.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i)
    ASSERT_NEAR(many.losses[i], one.losses[i], tolerance * one.losses[i]) << "step " << i;
}

void expect_planned_bytes(const SmallRun& run) {
  EXPECT_GT(run.planned_bytes, 0);
  for (const int64_t bytes : run.bytes) EXPECT_EQ(bytes, run.planned_bytes);
}

TEST_P(SplitChannels, LearnWhatOneRankLearnsAndSendTheBytesOfThePlan) {
  const SmallRun one = run_small(kRecipe, steps(), mp(1));
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const int workers : {2, 3, 4}) {
    SCOPED_TRACE(concat(workers, " workers"));
    ASSERT_EQ(small_settings(kRecipe, mp(workers)).plan_to_run().boundary, 0);
    const SmallRun many = run_small(kRecipe, steps(), mp(workers));
    expect_same_losses(one, many, 1e-4);
    expect_planned_bytes(many);
  }
}

// Some have no channels, and no rows of weights.
TEST_P(SplitChannels, LearnTheSameOnMoreRanksThanChannels) {
  const SmallRun one = run_small(kRecipe, 5, mp(1)), many = run_small(kRecipe, 5, mp(12));
  expect_same_losses(one, many, 1e-4);
  expect_planned_bytes(many);
}

// The dense layer after the pool takes the channels without a change, by rows; the loss gets images of one pixel.
TEST_P(SplitChannels, LearnTheSameWithoutDenseLayersAndByRowsAfterAPool) {
  const std::string convs = R"(
  { name = "conv1", type = "conv", out = 11, kernel = 3, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 10, kernel = 3, init = { type = "msra" } })";
  const std::string ends[] = {
      R"(, { name = "pool", type = "global_avg_pool" })", R"(, { name = "pool", type = "avg_pool", kernel = 8 })",
      R"(, { name = "pool", type = "global_avg_pool" }, { name = "fc", type = "dense", out = 10 })"};
  for (const std::string& end : ends) {
    SCOPED_TRACE(end);
    const std::string recipe = recipe_of(
        "[3, 12, 12]", "train_images = 48\nside = 12\nbatch = 12\naugment = { scale = 0.02, mean = \"channel\" }",
        convs + end);
    const SmallRun one = run_small(recipe, 6, mp(1));
    for (const char* split : {"columns", "rows"}) {
      const SmallRun many = run_small(recipe, 6, mp(3, {{"parallel.split", split}}));
      expect_same_losses(one, many, 1e-4);
      expect_planned_bytes(many);
    }
  }
}

// Ten numbers of a row and rank are less than 17 logits.
TEST_P(SplitChannels, LearnTheSameWhereTheLossIsOnShardsOfChannels) {
  std::string recipe = recipe_of(
      "[3, 8, 8]", "train_images = 48\nside = 8\nbatch = 12\naugment = { scale = 0.02, mean = \"channel\" }", R"(
  { name = "conv1", type = "conv", out = 9, kernel = 3, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 50, kernel = 6, init = { type = "msra" } })");
  recipe.replace(recipe.find("classes = 10"), 12, "classes = 50");
  ASSERT_TRUE(small_settings(recipe, mp(3)).plan_to_run().sharded_loss);
  const SmallRun many = run_small(recipe, 6, mp(3));
  expect_same_losses(run_small(recipe, 6, mp(1)), many, 1e-4);
  expect_planned_bytes(many);
}

// Statistics would cover a group's rows only, so the normalisation is removed here.
TEST_P(SplitChannels, OfReplicasLearnTheSame) {
  std::string layers = kLayers;
  const std::string norm = "{ name = \"norm1\", type = \"batch_norm\" },";
  layers.erase(layers.find(norm), norm.size());
  const std::string recipe = recipe_of(
      "[3, 12, 12]", "train_images = 96\nside = 12\nbatch = 24\naugment = { scale = 0.02, mean = \"channel\" }", layers,
      0.02);
  const SmallRun many = run_small(recipe, 6, mp(4, {{"parallel.model_ranks", "2"}, {"parallel.bucket_mb", "0.001"}}));
  expect_same_losses(run_small(recipe, 6, mp(1)), many, 1e-4);
  expect_planned_bytes(many);
}

// The rate is so large that three steps change the loss by more than rounding does. Parts of a convolution may use
// other algorithms than the whole, which differ by more in bf16.
TEST_P(SplitChannels, InBf16AndWithBf16TransportLearnNearlyTheSame) {
  const UsingConvAlgorithm direct(ConvAlgorithm::kDirect);
  const auto run = [&](int workers, Overrides changes) {
    changes.emplace_back("optimizer.learning_rate", "0.1");
    return run_small(kRecipe, 3, mp(workers, changes));
  };
  const SmallRun one = run(1, {}), half = run(3, {{"parallel.wire", "bf16"}});
  expect_same_losses(one, half, 0.03);
  expect_planned_bytes(half);
  const SmallRun one16 = run(1, {{"run.precision", "bf16"}}), many16 = run(3, {{"run.precision", "bf16"}});
  expect_same_losses(one16, many16, 0.03);
  expect_planned_bytes(many16);
}

class SplitChannelsRun : public ::testing::Test, protected WholeRuns {
 protected:
  // Trains up to this step on this many workers under mp.
  TrainOutcome run_to(const char* step, const char* workers, const std::string& out, const std::string& resume = "") {
    TrainOptions options;
    options.out = path(out);
    options.resume = resume;
    options.threads = 1;
    return train(small_settings(kRecipe, {{"run.log_every", "1"},
                                          {"schedule.max_steps", step},
                                          {"parallel.workers", workers},
                                          {"parallel.strategy", "mp"}}),
                 options);
  }

  static void expect_same_tensors(const std::string& one_file, const std::string& many_file) {
    SafetensorsReader one(one_file), many(many_file);
    ASSERT_EQ(one.entries().size(), many.entries().size());
    for (const auto& entry : one.entries()) {
      SCOPED_TRACE(entry.name);
      const Tensor a = one.read(entry.name), b = many.read(entry.name);
      ASSERT_EQ(a.shape(), b.shape());
      for (int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.data()[i], b.data()[i], 1e-4);
    }
  }
};

// Velocities and running averages of channels too.
TEST_F(SplitChannelsRun, LeaveTheCheckpointsOfOneRankAndTheSameAccuracy) {
  const TrainOutcome one = run_to("4", "1", "one");
  for (const char* workers : {"2", "3", "12"}) {
    SCOPED_TRACE(workers);
    const TrainOutcome many = run_to("4", workers, workers);
    expect_same_tensors(weights_of("one"), weights_of(workers));
    expect_same_tensors(optimizer_of("one"), optimizer_of(workers));
    EXPECT_EQ(many.evaluation.top1, one.evaluation.top1);
    EXPECT_NEAR(many.evaluation.loss, one.evaluation.loss, 1e-4 * one.evaluation.loss);
  }
}

TEST_F(SplitChannelsRun, ResumesWithOtherPartsAndOnOneRank) {
  run_to("9", "1", "whole");
  run_to("3", "3", "part");
  run_to("6", "2", "part", "auto");
  run_to("9", "1", "part", "auto");
  const auto expected = losses(path("whole")), found = losses(path("part"));
  ASSERT_EQ(found.size(), 9u);
  for (const auto& [step, loss] : found) EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << step;
}

TEST_F(SplitChannelsRun, ResumesBitForBit) {
  run_to("7", "3", "whole");
  run_to("4", "3", "part");
  run_to("7", "3", "part", "auto");
  EXPECT_EQ(read_file(weights_of("part")), read_file(weights_of("whole")));
  EXPECT_EQ(read_file(optimizer_of("part")), read_file(optimizer_of("whole")));
  EXPECT_EQ(losses(path("part")), losses(path("whole")));
}

}  // namespace
}  // namespace owt::split_channels_test

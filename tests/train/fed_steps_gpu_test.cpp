// Steps whose images have the layout that the first layer wants, for each way to compute that layer.
#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/comm/threads.h"
#include "src/system/plan_cache.h"
#include "src/train/evaluate.h"
#include "src/train/job.h"
#include "src/train/worker.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/runs.h"

namespace owt::fed_steps_gpu_test {
namespace {

const std::string kData = R"(train_images = 28
side = 12
batch = 12
augment = { mean = "channel", std = "channel" })";

const std::string kRecipe = recipe_of("[3, 12, 12]", kData, R"(
  { name = "conv1", type = "conv", out = 8, kernel = 5, stride = 2, pad = 2 },
  { name = "relu1", type = "relu" },
  { name = "fc", type = "dense", out = 10 })");

struct Training {
  std::vector<double> losses;
  double test_loss = 0;
  std::vector<int64_t> channels;  // for each batch in training
  int packing_kernels = 0;        // in all recorded steps
};

int recorded(const std::string& kernel) {
  int count = 0;
  for (const auto& graph : simulated_gpu::live_graphs())
    for (const auto& node : graph) count += node.name.find(kernel) != std::string::npos;
  return count;
}

constexpr int kNever = 100;

// Four epochs of three steps, the third of them smaller, and the test images; images are laid out from step `fed_from`
// on.
Training train(const std::string& recipe, int fed_from, bool graphs) {
  Job job;
  job.settings = small_settings(recipe, {{"run.device", "cuda"}, {"run.cuda_graph", graphs ? "true" : "false"}});
  job.plan = job.settings.plan_to_run();
  open_data(job, "");
  Training training;
  const auto body = [&](Communicator& comm) {
    Worker worker(job.settings, job.plan, comm);
    Step& step = worker.step;
    worker.model.initialize(job.settings.run.seed);
    for (const int64_t rows : {12, 4, 10}) step.prepare(rows);
    const auto batches = training_batches(job, 0, 0, 0), test = evaluation_batches(job, 0);
    if (fed_from == 0) step.feed_from(*test);
    for (int i = 0; i < 12; ++i) {
      if (i == fed_from) step.feed_from(*batches);
      const Batch& batch = batches->next(step.stream());
      training.channels.push_back(batch.images.shape()[3]);
      const StepResult result = step.train(batch, i, {0.05, 0.05}, false);
      training.losses.push_back(result.sums.loss / static_cast<double>(result.sums.rows));
    }
    training.test_loss = evaluate(worker, *test).loss;
    training.packing_kernels = recorded("pack_images");
  };
  run_ranks(1, 1, body, Device::kCuda);
  return training;
}

// From now on the first layer is computed so, whatever was measured.
void force_presentation(const std::string& name) {
  for (const auto& [key, text] : PlanCache::process().known())
    if (key.find("\npresentation, ") != std::string::npos) PlanCache::process().store_for_this_process(key, name);
}

TEST(FedSteps, LearnTheSameBitsAndArePackedByWhoeverMakesTheImages) {
  train(kRecipe, kNever, false);  // looks for presentations of all numbers of rows
  const std::pair<const char*, int64_t> packings[] = {
      {"plain", 3}, {"4 channels", 4}, {"8 channels", 8}, {"blocks", 16}};
  for (const auto& [name, channels] : packings)
    for (const bool graphs : {false, true}) {
      force_presentation(name);
      const Training fed = train(kRecipe, 0, graphs), unfed = train(kRecipe, kNever, graphs);
      EXPECT_THAT(fed.channels, testing::Each(channels)) << name;
      EXPECT_THAT(unfed.channels, testing::Each(3)) << name;
      EXPECT_EQ(fed.losses, unfed.losses) << name;
      EXPECT_EQ(fed.test_loss, unfed.test_loss) << name;
      EXPECT_EQ(fed.packing_kernels, 0) << name;
      EXPECT_EQ(unfed.packing_kernels > 0, graphs && channels != 3) << name;
    }
}

// Blocks of 4 x 4 pixels without padding: packed and plain images have the same size and use the same memory.
TEST(FedSteps, AreRecordedAgainWhereTheSameMemoryHoldsAnotherLayout) {
  const std::string recipe = recipe_of("[3, 12, 12]", kData, R"(
  { name = "conv1", type = "conv", out = 8, kernel = 4, stride = 4 },
  { name = "relu1", type = "relu" },
  { name = "fc", type = "dense", out = 10 })");
  train(recipe, kNever, false);
  force_presentation("blocks");
  const Training changed = train(recipe, 6, true);
  EXPECT_EQ(changed.channels, (std::vector<int64_t>{3, 3, 3, 3, 3, 3, 3, 48, 48, 48, 48, 48}));
  EXPECT_EQ(changed.losses, train(recipe, kNever, true).losses);
}

}  // namespace
}  // namespace owt::fed_steps_gpu_test

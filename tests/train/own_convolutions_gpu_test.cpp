// Steps whose convolutions are all computed by our own kernels, whatever was measured.
#include "tests/simulated_gpu/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/comm/threads.h"
#include "src/parallel/step.h"
#include "src/system/plan_cache.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"
#include "tests/simulated_gpu/runtime.h"
#include "tests/support/runs.h"

namespace owt::own_convolutions_gpu_test {
namespace {

// Sizes that no other test has, because choices stay for the life of the process. dp adds the gradient of a micro-batch
// to those before.
const std::string kRecipe = recipe_of("[3, 11, 11]", R"(train_images = 72
side = 11
batch = 24
augment = { mean = "channel", std = "channel" })",
                                      R"(
  { name = "conv1", type = "conv", out = 20, kernel = 5, pad = 2 },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 28, kernel = 3, pad = 1 },
  { name = "relu2", type = "relu" },
  { name = "pool2", type = "avg_pool", kernel = 3, stride = 2 },
  { name = "conv3", type = "conv", out = 12, kernel = 3 },
  { name = "fc", type = "dense", out = 10 })");

const Overrides kInBf16{{"run.device", "cuda"}, {"run.precision", "bf16"}};

SmallRun run(const Overrides& changes) { return run_small(kRecipe, 6, merged(kInBf16, changes)); }

// From now on convolutions are computed so.
void force(const std::string& choice) {
  for (const auto& [key, text] : PlanCache::process().known()) {
    if (key.find("own convolution or cuDNN, ") != std::string::npos)
      PlanCache::process().store_for_this_process(key, choice);
    if (key.find("mask of dx, ") != std::string::npos) PlanCache::process().store_for_this_process(key, "apart");
  }
}

// The nodes of a recorded step on one rank whose names begin with `kernel`.
int recorded(const std::string& kernel) {
  const Settings settings = small_settings(kRecipe, kInBf16);
  const Plan plan = settings.plan_to_run();
  int count = 0;
  run_ranks(
      1, 1,
      [&](Communicator& comm) {
        Worker worker(settings, plan, comm);
        worker.model.initialize(1);
        worker.step.prepare(24);
        const Batch batch = made_up_batch(settings.model, {0, 24}, plan.request, worker.step.wanted_images(24));
        for (int i = 0; i < 2; ++i) worker.step.train(batch, i, {0.01, 0.01}, false);
        for (const auto& graph : simulated_gpu::live_graphs())
          for (const auto& node : graph) count += node.name.starts_with(kernel + "<");
      },
      Device::kCuda);
  return count;
}

void expect_close(const SmallRun& found, const SmallRun& wanted, double tolerance) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i)
    ASSERT_NEAR(found.losses[i], wanted.losses[i], tolerance * wanted.losses[i]) << "step " << i;
}

TEST(OwnConvolutions, LearnWhatCudnnLearnsOnEveryNumberOfRanks) {
  const Overrides on_ranks[] = {
      {},
      {{"parallel.workers", "3"}, {"parallel.strategy", "dp"}},
      {{"parallel.workers", "2"}, {"parallel.strategy", "owt-a"}},
      {{"parallel.workers", "2"}, {"parallel.strategy", "owt-d"}},
      {{"parallel.strategy", "dp"}, {"data.accumulate", "3"}},
  };
  for (const Overrides& changes : on_ranks) run(changes);  // makes all choices
  force("cuDNN");
  const SmallRun of_cudnn = run({});
  EXPECT_EQ(recorded("small_conv"), 0);
  force("own 0.001");
  EXPECT_EQ(recorded("small_conv"), 5) << "three forward, and two data gradients";
  EXPECT_EQ(recorded("small_conv_weights"), 3);
  ASSERT_LT(of_cudnn.losses.back(), 0.97 * of_cudnn.losses.front());
  for (const Overrides& changes : on_ranks) {
    SCOPED_TRACE(changes.empty() ? "one rank" : changes.back().second);
    expect_close(run(changes), of_cudnn, 0.01);
  }
}

}  // namespace
}  // namespace owt::own_convolutions_gpu_test

// Steps on a GPU whose loss samples classes, against the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "src/train/job.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/runs.h"

namespace owt::sample_on_cuda_test {
namespace {

class SampleOnGpu : public DeviceTest {
 protected:
  SmallRun run(const std::string& recipe, int64_t steps, Overrides changes = {}) const {
    changes.emplace_back("run.device", name_of(device()));
    return run_sampled(recipe, steps, changes);
  }
  static SmallRun run_sampled(const std::string& recipe, int64_t steps, Overrides changes = {}) {
    changes.emplace_back("loss.sample", "0.2");
    return run_small(recipe, steps, changes);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SampleOnGpu);
INSTANTIATE_TEST_SUITE_P(Gpus, SampleOnGpu, ::testing::ValuesIn(gpu_devices()), device_name);

// The small recipe with `classes` classes. Its last layer has a bias and rows of 20 elements.
std::string dense_recipe(int classes) {
  std::string recipe = kSmallRecipe;
  const auto replace = [&](const std::string& from, const std::string& to) {
    recipe.replace(recipe.find(from), from.size(), to);
  };
  replace("classes = 10", concat("classes = ", classes));
  replace("out = 10", concat("out = ", classes));
  replace("out = 17", "out = 20");
  return recipe;
}

void expect_close(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], tolerance * wanted[i]) << "step " << i + 1;
}

struct Case {
  std::string recipe;
  Overrides changes;
};

// 150 classes of two ranks, and 149, whose parts are not equal.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& recipe : {dense_recipe(150), cosine_recipe(149)}) {
    all.push_back({recipe, {}});
    all.push_back({recipe, {{"optimizer.clip", "0.5"}}});
    for (const char* strategy : {"owt-a", "owt-c", "owt-d"})
      all.push_back({recipe, {{"parallel.workers", "2"}, {"parallel.strategy", strategy}}});
    all.push_back(
        {recipe, {{"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}, {"parallel.dense_update", "round"}}});
  }
  all.push_back({cosine_recipe(149), with_optimizer("adamw")});
  return all;
}

TEST_P(SampleOnGpu, LearnsWhatTheCpuLearns) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.changes.empty() ? "no changes" : c.changes.back().second);
    const SmallRun cpu = run_sampled(c.recipe, 10, c.changes), gpu = run(c.recipe, 10, c.changes);
    expect_close(gpu.losses, cpu.losses, 1e-4);
    expect_close(gpu.gradient_norms, cpu.gradient_norms, 1e-4);
    for (const auto& [name, weights] : cpu.weights)
      for (size_t i = 0; i < weights.size(); ++i)
        ASSERT_NEAR(gpu.weights.at(name)[i], weights[i], 1e-4) << name << " at " << i;
  }
}

// The second step packs other rows, of weights that the first one has changed.
TEST_P(SampleOnGpu, LearnsAlmostTheSameInBf16) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.changes.empty() ? "no changes" : c.changes.back().second);
    const Overrides changes = merged(c.changes, {{"optimizer.learning_rate", "0.001"}});
    const SmallRun exact = run_sampled(c.recipe, 2, changes);
    const SmallRun bf16 = run(c.recipe, 2, merged(changes, {{"run.precision", "bf16"}}));
    expect_close(bf16.losses, exact.losses, 0.005);
    for (const auto& [name, copy] : bf16.copies16)
      for (size_t i = 0; i < copy.size(); ++i)
        ASSERT_EQ(copy[i], from_bf16(to_bf16(bf16.weights.at(name)[i]))) << name << " at " << i;
  }
}

// Each replayed step draws its own classes and packs their rows again.
TEST_P(SampleOnGpu, RecordedStepsGiveTheSameBits) {
  for (const std::string& recipe : {dense_recipe(150), cosine_recipe(149)})
    for (const char* precision : {"fp32", "bf16"}) {
      const auto run_with = [&](const char* graph) {
        return run(recipe, 16, {{"run.precision", precision}, {"run.cuda_graph", graph}});
      };
      const SmallRun recorded = run_with("true"), plain = run_with("false");
      EXPECT_EQ(recorded.losses, plain.losses) << precision;
      EXPECT_EQ(recorded.weights, plain.weights) << precision;
    }
}

struct Results {
  std::vector<double> trained, evaluated;  // losses
  std::vector<int64_t> sampled;            // classes
};

// Trains and evaluates on the same batches, in turns.
Results in_turns(const std::string& recipe, const Overrides& changes) {
  Job job;
  job.settings = small_settings(recipe, changes);
  job.plan = job.settings.plan_to_run();
  open_data(job, "");
  Results results;
  const auto body = [&](Communicator& comm) {
    Worker worker(job.settings, job.plan, comm);
    worker.model.initialize(job.settings.run.seed);
    const auto batches = training_batches(job, comm.rank(), 0, 0);
    for (int64_t i = 0; i < 6; ++i) {
      const Batch& batch = batches->next(worker.step.stream());
      const StepResult trained = worker.step.train(batch, i, {0.02, 0.02}, false), seen = worker.step.evaluate(batch);
      if (comm.rank() != 0) continue;
      results.trained.push_back(trained.sums.loss / static_cast<double>(trained.sums.rows));
      results.sampled.push_back(trained.sampled_classes);
      results.evaluated.push_back(seen.sums.loss / static_cast<double>(seen.sums.rows));
    }
  };
  run_ranks(job.plan.ranks(), 1, body, job.plan.request.on.device);
  return results;
}

TEST_P(SampleOnGpu, EvaluatesOnAllClassesAndCountsTheSampledOnes) {
  for (const char* workers : {"1", "2"}) {
    const Overrides changes{{"parallel.workers", workers}, {"loss.sample", "0.2"}};
    const Results cpu = in_turns(cosine_recipe(149), changes);
    const Results gpu = in_turns(cosine_recipe(149), merged(changes, {{"run.device", name_of(device())}}));
    EXPECT_EQ(gpu.sampled, cpu.sampled);
    EXPECT_GT(gpu.sampled[0], 15);
    EXPECT_LT(gpu.sampled[0], 75);
    expect_close(gpu.trained, cpu.trained, 1e-4);
    expect_close(gpu.evaluated, cpu.evaluated, 1e-4);
  }
}

}  // namespace
}  // namespace owt::sample_on_cuda_test

// Local SGD: ranks train separately between averages of their weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/comm/signals.h"
#include "src/comm/threads.h"
#include "src/core/cpu_bf16.h"
#include "src/files/safetensors.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "src/plan/plan_updates.h"
#include "src/predict/memory_need.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::local_steps_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Overrides on_ranks(const char* strategy, const char* workers, const Overrides& more = {}) {
  return merged({{"parallel.strategy", strategy}, {"parallel.workers", workers}}, more);
}

const Overrides kEveryThird{{"parallel.average_every", "3"}};

// Running averages of a batch norm in place of kSmallRecipe's norm.
std::string with_batch_norm() {
  std::string recipe = kSmallRecipe;
  const std::string norm = "type = \"lrn\"\nsize = 3\nalpha = 0.01";
  return recipe.replace(recipe.find(norm), norm.size(), "type = \"batch_norm\"");
}

// The same net without kinks. Two runs that differ by rounding may be on different sides of a kink: a gradient then
// differs by far more than rounding, and whether this happens depends on the processor.
std::string without_kinks() {
  std::string recipe = with_batch_norm();
  for (const auto& [kink, smooth] : {std::pair<std::string, std::string>("\"relu\"", "\"activation\"\nkind = \"silu\""),
                                     {"\"max_pool\"", "\"avg_pool\""}})
    for (size_t at; (at = recipe.find(kink)) != std::string::npos;) recipe.replace(at, kink.size(), smooth);
  return recipe;
}

void expect_near(const SmallRun& found, const SmallRun& wanted, double bound) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], wanted.losses[i], bound * wanted.losses[i]) << "step " << i;
  ASSERT_EQ(found.weights.size(), wanted.weights.size());
  for (const auto& [name, values] : wanted.weights)
    EXPECT_THAT(found.weights.at(name), ::testing::Pointwise(::testing::FloatNear(static_cast<float>(bound)), values))
        << name;
}

class LocalSteps : public DeviceTest {
 protected:
  SmallRun run(const std::string& recipe, int64_t steps, Overrides changes, std::optional<StepKind> kind = {}) const {
    changes.emplace_back("run.device", name_of(device()));
    return run_small(recipe, steps, changes, kUpdateBesideFrom, false, kind);
  }
  int64_t steps(int64_t on_cpu) const { return device() == Device::kCpu ? on_cpu : std::min<int64_t>(on_cpu, 5); }
};
INSTANTIATE_TEST_SUITE_P(Devices, LocalSteps, ::testing::ValuesIn(devices()), device_name);

// The fifth step has 4 rows: of three ranks one has more than the others then, and of twelve most have none.
TEST_P(LocalSteps, AveragedAfterEachLearnWhatSynchronousOnesDoWithUnevenRowsToo) {
  const std::vector<Overrides> cases{on_ranks("dp", "2"),
                                     on_ranks("dp", "3", {{"parallel.bucket_mb", "0.001"}}),
                                     on_ranks("dp", "12"),
                                     on_ranks("dp", "3", {{"parallel.shares", "[3, 1, 2]"}}),
                                     on_ranks("dp", "3", {{"optimizer.nesterov", "true"}}),
                                     on_ranks("owt-a", "3"),
                                     on_ranks("owt-c", "4", {{"parallel.model_ranks", "2"}}),
                                     on_ranks("owt-d", "12")};
  for (const Overrides& on : cases) {
    if (device() != Device::kCpu && on[1].second != "3") continue;  // a simulated GPU is slow
    SCOPED_TRACE(concat(on[0].second, ", ", on[1].second, " workers"));
    const SmallRun averaged = run(without_kinks(), steps(11), merged(on, kEveryThird), StepKind::kAveraging);
    expect_near(averaged, run(without_kinks(), steps(11), on), 1e-5);
    EXPECT_EQ(averaged.bytes, averaged.planned_of_ranks);
  }
}

TEST_P(LocalSteps, SendNothingBetweenAveragesAndThenTheBytesOfThePlan) {
  for (const char* strategy : {"dp", "owt-a", "owt-b", "owt-c", "owt-d"})
    for (const char* wire : {"fp32", "bf16"}) {
      SCOPED_TRACE(concat(strategy, ", ", wire));
      const SmallRun local =
          run(with_batch_norm(), steps(11), on_ranks(strategy, "3", merged(kEveryThird, {{"parallel.wire", wire}})));
      EXPECT_EQ(local.bytes, local.planned_of_ranks);
      for (const double loss : local.losses) EXPECT_TRUE(std::isfinite(loss));
    }
}

TEST_P(LocalSteps, LearnSomethingElseThanSynchronousOnes) {
  const SmallRun dp = run(kSmallRecipe, 3, on_ranks("dp", "2")),
                 local = run(kSmallRecipe, 3, on_ranks("dp", "2", kEveryThird));
  EXPECT_EQ(local.losses[0], dp.losses[0]);  // with the initial weights
  EXPECT_NE(local.losses[2], dp.losses[2]);
}

TEST_P(LocalSteps, BeginAfterSynchronousOnesThatHaveTheBitsOfDp) {
  const Overrides later = merged(kEveryThird, {{"parallel.average_from", "2"}});
  for (const char* strategy : {"dp", "owt-c"}) {
    const SmallRun first = run(kSmallRecipe, 4, on_ranks(strategy, "3", later), StepKind::kSynchronous),
                   plain = run(kSmallRecipe, 4, on_ranks(strategy, "3"));
    EXPECT_EQ(first.losses, plain.losses);
    EXPECT_EQ(first.weights, plain.weights);
    EXPECT_EQ(first.bytes, first.planned_of_ranks);
  }
}

TEST_P(LocalSteps, InBf16RenewTheCopiesOfAveragedWeights) {
  const SmallRun local = run(kSmallRecipe, 3, on_ranks("dp", "2", merged(kEveryThird, {{"run.precision", "bf16"}})));
  EXPECT_EQ(local.copies16.empty(), device() == Device::kCpu && !cpu_has_bf16());
  for (const auto& [name, copy] : local.copies16) {
    const std::vector<float>& weights = local.weights.at(name);
    for (size_t i = 0; i < copy.size(); ++i) ASSERT_NEAR(copy[i], weights[i], std::abs(weights[i]) / 256) << name;
  }
}

// A rank's weights and the optimizer's states, one after the other.
std::vector<float> state_of(Worker& worker) {
  std::vector<float> all;
  for (Param* param : worker.model.params()) {
    const std::vector<float> values = download(param->value);
    all.insert(all.end(), values.begin(), values.end());
    if (param->role != ParamRole::kTrained) continue;
    for (const Tensor& state : worker.optimizer.states(*param)) {
      const std::vector<float> kept = download(state);
      all.insert(all.end(), kept.begin(), kept.end());
    }
  }
  return all;
}

TEST_P(LocalSteps, DifferUntilTheyAreAveragedWhichTwiceIsOnce) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const Settings settings = small_settings(
        with_batch_norm(),
        on_ranks("dp", "2",
                 merged(with_optimizer(optimizer), merged(kEveryThird, {{"run.device", name_of(device())}}))));
    const Plan plan = settings.plan_to_run();
    std::vector<std::vector<float>> before(2), after(2);
    run_ranks(
        2, 1,
        [&](Communicator& comm) {
          Worker worker(settings, plan, comm);
          worker.model.initialize(3);
          const Batch batch =
              made_up_batch(settings.model, rows_of(plan, plan.request.step_rows).of(comm.rank()), plan.request);
          for (int i = 0; i < 2; ++i) worker.step.train(batch, i, {0.01, 0.01}, false);
          const auto rank = static_cast<size_t>(comm.rank());
          before[rank] = state_of(worker);
          worker.step.average();
          after[rank] = state_of(worker);
          worker.step.average();
          EXPECT_EQ(state_of(worker), after[rank]);
        },
        device());
    EXPECT_NE(before[0], before[1]);
    EXPECT_EQ(after[0], after[1]);
    for (size_t i = 0; i < after[0].size(); ++i) ASSERT_NEAR(after[0][i], (before[0][i] + before[1][i]) / 2, 1e-6);
  }
}

TEST(LocalStepsPlan, SendsWeightsAndVelocitiesInOneOfSoManySteps) {
  PlanRequest request{.ranks = 4, .strategy = Strategy::kDataParallel, .step_rows = 24};
  const Model model = small_settings(kSmallRecipe).model;
  const Plan dp = make_plan(model, request);
  request.average_every = 8;
  const Plan local = make_plan(model, request);
  const int64_t result = dp.transfer(dp.of_step.result).bytes, gradients = dp.transfer(dp.of_step.gradients).bytes;
  EXPECT_EQ(bytes_in(local, StepKind::kLocal), result);
  EXPECT_EQ(bytes_in(local, StepKind::kAveraging), result + 2 * gradients);
  EXPECT_EQ(bytes_per_step(local), result + 2 * gradients / 8);
  EXPECT_THAT(plan_table(local), AllOf(HasSubstr("weights averaged every 8 steps;"), HasSubstr(" every 8 steps\n")));
  EXPECT_EQ(local.of_step.gradients, kNoTransfer);

  request.optimizer_states = 2;
  EXPECT_EQ(bytes_in(make_plan(model, request), StepKind::kAveraging), result + 3 * gradients);
  request.optimizer_states = 1;

  request.average_from = 5;
  const Plan later = make_plan(model, request);
  EXPECT_EQ(bytes_in(later, StepKind::kSynchronous), bytes_per_step(dp));
  EXPECT_EQ(bytes_per_step(later), bytes_per_step(local));
  EXPECT_THAT(plan_table(later), HasSubstr(" in the first 5 epochs\n"));
}

TEST(LocalStepsPlan, UpdatesDenseWeightsAtOnceWhereNoStepIsSynchronous) {
  const Model model = small_settings(kSmallRecipe).model;
  const auto at_once = [&](int every, double from) {
    const Plan plan = make_plan(model, {.ranks = 2,
                                        .strategy = Strategy::kDataParallel,
                                        .step_rows = 8,
                                        .average_every = every,
                                        .average_from = from});
    return updates_at_once(plan, 8);  // fc1
  };
  EXPECT_FALSE(at_once(1, 0));
  EXPECT_TRUE(at_once(2, 0));
  EXPECT_FALSE(at_once(2, 1));
}

// Values and velocities are averaged in place.
TEST(LocalStepsPlan, NeedNoMoreMemoryThanDp) {
  const Model model = small_settings(kSmallRecipe).model;
  PlanRequest request{.ranks = 2, .strategy = Strategy::kDataParallel, .step_rows = 8, .keeps_gradients = true};
  const int64_t dp = memory_need(make_plan(model, request)).bytes(8);
  request.average_every = 4;
  EXPECT_EQ(memory_need(make_plan(model, request)).bytes(8), dp);
}

TEST(LocalStepsPlan, IsRefusedWhereItMakesNoSense) {
  for (const char* strategy : {"dp-zero", "mp"})
    EXPECT_THAT(message_of([&] { small_settings(kSmallRecipe, on_ranks(strategy, "2", kEveryThird)).plan_to_run(); }),
                HasSubstr(concat("weights cannot be averaged every 3 steps (parallel.average_every) under ", strategy,
                                 "; use dp, owt-a, owt-b, owt-c, owt-d")));
  EXPECT_THAT(message_of([&] { small_settings(kSmallRecipe, on_ranks("auto", "2", kEveryThird)); }),
              HasSubstr("'auto' and average_every do not go together"));
  for (const char* strategy : {"dp", "owt-a"})
    EXPECT_FALSE(small_settings(kSmallRecipe, on_ranks(strategy, "1", kEveryThird)).plan_to_run().averages());
}

class LocalRun : public ::testing::Test, protected WholeRuns {};

// Steps 1 to 5 are synchronous; checkpoints at steps 3, 6 ... and at every epoch of 5 steps average in addition.
TEST_F(LocalRun, ResumesBitForBitFromEveryCheckpoint) {
  const Overrides often{
      {"run.checkpoint_every_steps", "3"}, {"run.keep_checkpoints", "99"}, {"run.equality_every", "2"}};
  const std::vector<Overrides> cases{on_ranks("dp", "3", {{"parallel.average_every", "4"}}),
                                     on_ranks("owt-c", "3", {{"parallel.average_every", "4"}}),
                                     on_ranks("dp", "2", merged(kEveryThird, {{"parallel.average_from", "1"}}))};
  for (size_t i = 0; i < cases.size(); ++i) {
    const Overrides changes = merged(merged(kEveryStepLogged, often), cases[i]);
    const std::string whole = concat("whole", i);
    run(whole, changes);
    for (const char* step : {"3", "5", "9", "12"}) {
      const std::string out = concat("part", i, "-", step);
      run(out, changes,
          concat(path(whole), "/checkpoints/step-000000", std::string(step).size() == 1 ? "0" : "", step));
      EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of(whole))) << "from step " << step;
      EXPECT_EQ(read_file(optimizer_of(out)), read_file(optimizer_of(whole))) << "from step " << step;
      for (const auto& [number, loss] : losses(path(out))) EXPECT_EQ(loss, losses(path(whole)).at(number));
    }
  }
}

// After the first step the average equals the result of a synchronous step.
TEST_F(LocalRun, StoppedBySignalAveragesBeforeItsCheckpoint) {
  const Overrides until = merged(kEveryStepLogged, {{"schedule.max_steps", "1"}});
  run("dp", merged(until, on_ranks("dp", "3")));
  const Overrides local = merged(kEveryStepLogged, on_ranks("dp", "3", {{"parallel.average_every", "100"}}));
  request_stop(true);
  EXPECT_FALSE(run("local", local).finished);
  request_stop(false);
  for (const bool optimizer : {false, true}) {
    SafetensorsReader dp(optimizer ? optimizer_of("dp") : weights_of("dp"));
    SafetensorsReader stopped(optimizer ? optimizer_of("local") : weights_of("local"));
    ASSERT_EQ(dp.entries().size(), stopped.entries().size());
    for (const auto& entry : dp.entries()) {
      const Tensor a = dp.read(entry.name), b = stopped.read(entry.name);
      for (int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.data()[i], b.data()[i], 1e-6) << entry.name;
    }
  }
  EXPECT_TRUE(run("local", local, "auto").finished);
}

TEST_F(LocalRun, ResumesOnOneWorkerAndUnderAnotherStrategy) {
  const Overrides until = merged(kEveryStepLogged, {{"schedule.max_steps", "7"}});
  run("part", merged(until, on_ranks("dp", "4", kEveryThird)));
  EXPECT_TRUE(run("part", merged(kEveryStepLogged, on_ranks("owt-a", "1")), "auto").finished);
  EXPECT_EQ(losses(path("part")).size(), 20u);
}

}  // namespace
}  // namespace owt::local_steps_test

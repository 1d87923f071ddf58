// Training with a parameter server on every rank, with and without a delay: steps and whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/signals.h"
#include "src/comm/threads.h"
#include "src/train/job.h"
#include "src/train/trainer.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::served_runs_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Overrides served(const char* workers, const char* delay, const Overrides& more = {}) {
  return merged({{"parallel.workers", workers}, {"parallel.strategy", "ps"}, {"ps.delay", delay}}, more);
}

const std::vector<Overrides> kDelays{served("3", "1"),
                                     served("2", "3"),
                                     served("4", "inf"),
                                     served("3", "2", {{"ps.pushes", "2"}}),
                                     served("3", "2", {{"ps.pushes", "0"}}),
                                     served("2", "1", {{"parallel.wire", "'bf16'"}, {"parallel.bucket_mb", "0.001"}}),
                                     served("3", "1", {{"ps.filters", "['fix8']"}, {"parallel.bucket_mb", "0.001"}}),
                                     served("4", "1", {{"ps.servers", "1"}}),
                                     served("5", "inf", {{"ps.servers", "2"}, {"parallel.bucket_mb", "0.001"}})};

std::string text_of(const Overrides& changes) {
  std::string text;
  for (const auto& [key, value] : changes) text += concat(key, "=", value, " ");
  return text;
}

// The order of pushes differs between runs, and with it what workers learn. Updates in any order change the weights.
TEST(ServedSteps, WithADelaySendTheBytesOfThePlanAndChangeTheWeights) {
  const auto begun = run_small(kSmallRecipe, 0).weights;
  for (const Overrides& changes : kDelays) {
    SCOPED_TRACE(text_of(changes));
    const SmallRun run = run_small(kSmallRecipe, 20, changes);
    EXPECT_THAT(run.losses, ::testing::SizeIs(20));
    EXPECT_THAT(run.losses, ::testing::Each(::testing::Gt(0)));
    EXPECT_EQ(run.bytes, run.planned_of_ranks);
    for (const auto& [name, values] : run.weights) EXPECT_NE(values, begun.at(name)) << name;
  }
}

// A worker without others has its own updates in its weights, whatever the delay.
TEST(ServedSteps, OfOneWorkerAndItsServersLearnWhatItLearnsAlone) {
  const SmallRun alone = run_small(kSmallRecipe, 20);
  for (const char* delay : {"1", "3", "inf"})
    for (const auto& [workers, servers] : {std::pair("2", "1"), {"3", "2"}}) {
      SCOPED_TRACE(concat("delay ", delay, ", ", servers, " servers"));
      const SmallRun run = run_small(
          kSmallRecipe, 20, served(workers, delay, {{"ps.servers", servers}, {"parallel.bucket_mb", "0.001"}}));
      ASSERT_EQ(run.losses.size(), alone.losses.size());
      for (size_t i = 0; i < run.losses.size(); ++i)
        EXPECT_NEAR(run.losses[i], alone.losses[i], 1e-4 * alone.losses[i]) << "step " << i;
    }
}

// The rate is too small to change a weight, so the order of pushes has no effect.
TEST(ServedSteps, ALossIsThatOfAllRowsOfItsStep) {
  const Overrides still{{"optimizer.learning_rate", "1e-30"}};
  const std::vector<double> one = run_small(kSmallRecipe, 5, still).losses;
  for (const Overrides& changes : kDelays) {
    SCOPED_TRACE(text_of(changes));
    const std::vector<double> found = run_small(kSmallRecipe, 5, merged(changes, still)).losses;
    ASSERT_EQ(found.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(found[i], one[i], 1e-4 * one[i]) << "step " << i;
  }
}

class ServedRuns : public ::testing::Test, protected WholeRuns {};

TEST_F(ServedRuns, WithADelayHaveALineForEveryStepAndTheWeightsThatTheyEvaluate) {
  for (size_t i = 0; i < kDelays.size(); ++i) {
    SCOPED_TRACE(text_of(kDelays[i]));
    const std::string out = concat("run", i);
    const TrainOutcome outcome = run(out, merged(kEveryStepLogged, kDelays[i]));
    EXPECT_TRUE(outcome.finished);
    const std::vector<TrainLine> lines = train_lines(path(out));
    ASSERT_EQ(lines.size(), 20u);
    for (size_t at = 0; at < lines.size(); ++at) EXPECT_EQ(lines[at].step, static_cast<int64_t>(at) + 1);
    const Evaluation again = evaluate_file(small_settings(kSmallRecipe), {weights_of(out), "", 1});
    EXPECT_EQ(again.top1, outcome.evaluation.top1);
    EXPECT_NEAR(again.loss, outcome.evaluation.loss, 1e-5);
  }
}

TEST_F(ServedRuns, RanksHaveTheSameWeightsWhereTheyMeet) {
  for (size_t i = 0; i < kDelays.size(); ++i)
    EXPECT_NO_THROW(run(concat("run", i), merged(merged(kEveryStepLogged, {{"run.equality_every", "7"}}), kDelays[i])))
        << text_of(kDelays[i]);
}

// Bit-identical weights and optimizer states, with servers that run no worker.
TEST_F(ServedRuns, WithServersApartLearnWhatDataParallelWorkersLearn) {
  const Overrides few{{"parallel.bucket_mb", "0.001"}, {"run.equality_every", "3"}};
  const Evaluation dp =
      run("dp", merged(merged(kEveryStepLogged, {{"parallel.workers", "3"}, {"parallel.strategy", "dp"}}), few))
          .evaluation;
  for (const char* servers : {"1", "2"}) {
    const std::string out = concat("apart", servers);
    const char* const all = servers[0] == '1' ? "4" : "5";
    const TrainOutcome apart =
        run(out, merged(merged(kEveryStepLogged, served(all, "0", {{"ps.servers", servers}})), few));
    EXPECT_EQ(read_file(weights_of(out)), read_file(weights_of("dp"))) << servers;
    EXPECT_EQ(read_file(optimizer_of(out)), read_file(optimizer_of("dp"))) << servers;
    EXPECT_EQ(losses(path(out)), losses(path("dp"))) << servers;
    EXPECT_EQ(apart.evaluation.top1, dp.top1) << servers;
  }
}

// Every rank asks to stop in every step; the first request takes effect `delay` steps later.
TEST_F(ServedRuns, AStopRequestIsSeenAfterTheDelayAndTheRunResumes) {
  for (const auto& [delay, step] : {std::pair("0", 1), {"2", 3}, {"inf", 5}}) {  // 5 steps are an epoch
    SCOPED_TRACE(delay);
    const std::string out = concat("delay", step);
    request_stop(true);
    EXPECT_FALSE(run(out, merged(kEveryStepLogged, served("3", delay))).finished);
    request_stop(false);
    EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path(out))).step, step);
    EXPECT_TRUE(run(out, merged(kEveryStepLogged, served("2", delay)), "auto").finished);
    EXPECT_EQ(losses(path(out)).size(), 20u);
  }
}

// The number of updates equals the number of gradients; Adam's averages depend on it.
TEST_F(ServedRuns, ACheckpointKnowsHowManyUpdatesThereWere) {
  const auto updates = [&](const Overrides& changes) {
    run("run", merged(merged(kEveryStepLogged, {{"schedule.max_steps", "7"}}), changes));
    const RunState state = load_checkpoint_state(*newest_checkpoint(path("run")));
    std::filesystem::remove_all(path("run"));
    return state.updates.front;
  };
  EXPECT_EQ(updates(served("3", "0")), 7);
  EXPECT_EQ(updates(served("3", "1")), 21);
  EXPECT_EQ(updates(served("3", "1", {{"ps.pushes", "0"}})), 7);
  // 15 gradients of the first epoch are 7 updates and a remainder, 6 of the second are 3.
  EXPECT_EQ(updates(served("3", "1", {{"ps.pushes", "2"}})), 11);
}

// If one of three workers is lost, the others continue with the servers' weights, like a run with two workers that
// resumes from a checkpoint of three.
TEST_F(ServedRuns, ThoseThatAreLeftTakeOverWhatTheServersHave) {
  for (const char* servers : {"1", "2"}) {
    const Overrides common = merged(kEveryStepLogged, {{"ps.servers", servers}, {"parallel.bucket_mb", "0.001"}});
    const int all = servers[0] == '1' ? 4 : 5;
    const auto with = [&](int workers, const char* steps) {
      return merged(common, served(std::to_string(workers).c_str(), "0", {{"schedule.max_steps", steps}}));
    };
    const std::string resumed = concat("resumed", servers), taken = concat("taken", servers);
    run(resumed, with(all, "10"));
    run(resumed, with(all - 1, "20"), "auto");

    Job job;
    job.settings = small_settings(kSmallRecipe, with(all, "10"));
    job.plan = job.settings.plan_to_run();
    job.run_folder = path(taken);
    std::filesystem::create_directories(job.run_folder);
    open_data(job, "");
    Job left = job;
    left.settings = small_settings(kSmallRecipe, with(all - 1, "20"));
    left.plan = left.settings.plan_to_run();
    run_ranks(all, 1, [&](Communicator& comm) {
      Trainer before(job, comm);
      EXPECT_EQ(before.run(), TrainingEnd::kFinished);
      const bool lost = comm.rank() == 1;
      const std::unique_ptr<Communicator> others = comm.split(lost);
      if (lost) return;
      EXPECT_EQ(Trainer(left, *others, &before).run(), TrainingEnd::kFinished);
    });
    EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path(taken))).workers, all - 1);
    EXPECT_EQ(read_file(weights_of(taken)), read_file(weights_of(resumed))) << servers;
    EXPECT_EQ(read_file(optimizer_of(taken)), read_file(optimizer_of(resumed))) << servers;
    EXPECT_EQ(losses(path(taken)), losses(path(resumed))) << servers;
    EXPECT_EQ(losses(path(taken)).size(), 20u);
  }
}

std::string refusal(const Overrides& changes) {
  return message_of([&] { small_settings(kSmallRecipe, changes).plan_to_run(); });
}

TEST_F(ServedRuns, RefuseWhatServersCannotKnow) {
  EXPECT_THAT(refusal(served("2", "0", {{"optimizer.clip", "1"}})),
              AllOf(HasSubstr("optimizer.clip"), HasSubstr("ps")));
  EXPECT_THAT(refusal(served("2", "1", {{"optimizer.ema", "0.9"}})), HasSubstr("use ps.delay = 0"));
  EXPECT_THAT(refusal(served("2", "inf", {{"ps.pushes", "0"}})), HasSubstr("use ps.pushes = 1"));
  EXPECT_THAT(refusal(served("2", "0", {{"ps.filters", "['fix8']"}, {"parallel.wire", "'bf16'"}})),
              HasSubstr("leave one of them out"));
  EXPECT_THAT(refusal(served("2", "0", {{"ps.filters", "['kkt:1']"}})), HasSubstr("L1 penalty"));
  EXPECT_THAT(refusal(served("2", "0", {{"ps.filters", "['fix9']"}})), AllOf(HasSubstr("fix9"), HasSubstr("filters")));
  EXPECT_THAT(refusal(served("2", "0", {{"parallel.average_every", "4"}})), HasSubstr("under ps"));
  for (const auto& [delay, refused] : {std::pair("0", false), {"1", true}}) {
    std::string recipe = kSmallRecipe;
    const std::string norm = "type = \"lrn\"\nsize = 3\nalpha = 0.01";
    recipe.replace(recipe.find(norm), norm.size(), "type = \"batch_norm\"\nrows = \"step\"");
    const std::string said =
        message_of([&, delay = delay] { small_settings(recipe, served("2", delay)).plan_to_run(); });
    EXPECT_THAT(said, HasSubstr(refused ? "with ps.delay" : ""));
    EXPECT_EQ(said.empty(), !refused) << said;
  }
  EXPECT_THAT(refusal(served("2", "0", {{"ps.servers", "2"}})), HasSubstr("at least one must compute"));
  EXPECT_THAT(refusal(served("3", "0", {{"ps.servers", "1"}, {"parallel.shares", "[1, 1, 2]"}})),
              HasSubstr("do not go together"));
  EXPECT_THAT(refusal(served("3", "0", {{"ps.servers", "1"}, {"optimizer.ema", "0.9"}})), HasSubstr("ps.servers = 0"));
  EXPECT_THAT(message_of([] {
                small_settings(kSmallRecipe, served("3", "0", {{"ps.tolerate_loss", "true"}}));
              }),
              HasSubstr("needs separate servers"));
  // One worker has no other to serve.
  EXPECT_NO_THROW(small_settings(kSmallRecipe, served("1", "1", {{"optimizer.clip", "1"}})).plan_to_run());
}

}  // namespace
}  // namespace owt::served_runs_test

// Whole runs through train(): run folder, resume, stop, evaluation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "src/comm/signals.h"
#include "src/comm/threads.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "src/system/files.h"
#include "src/train/trainer.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::trainer_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainerTest : public ::testing::Test, protected WholeRuns {
 protected:
  // Two data-parallel ranks; the second has other settings, which only a fault could cause.
  void run_unlike(const std::string& out, const Overrides& changes, const std::function<void(Settings&)>& of_rank_1) {
    Job job;
    job.settings = small_settings(
        kSmallRecipe,
        merged({{"parallel.workers", "2"}, {"parallel.strategy", "dp"}, {"run.equality_every", "3"}}, changes));
    job.plan = job.settings.plan_to_run();
    job.run_folder = path(out);
    fs::create_directories(job.run_folder);
    open_data(job, "");
    run_ranks(2, 1, [&](Communicator& comm) {
      Job mine = job;
      if (comm.rank() == 1) of_rank_1(mine.settings);
      Trainer(mine, comm).run();
    });
  }
};

TEST_F(TrainerTest, InitialWeightsAreThoseOfRankZeroWhateverTheOthersHaveDrawn) {
  const Overrides three_steps{{"schedule.max_steps", "3"}};
  EXPECT_NO_THROW(run_unlike("a", three_steps, [](Settings& settings) { settings.run.seed += 1; }));
}

TEST_F(TrainerTest, CopiesThatDifferEndTheRunWithAHintWhereToResume) {
  const auto another_rate = [](Settings& settings) { settings.optimizer.learning_rate *= 2; };
  EXPECT_THAT(message_of([&] {
                run_unlike("a", {{"run.checkpoint_every_steps", "2"}}, another_rate);
              }),
              AllOf(HasSubstr("step 3: 'conv1.weight' of rank 1 is not that of rank 0"),
                    EndsWith("(step 2); resume with --resume auto")));
  EXPECT_THAT(message_of([&] { run_unlike("b", {}, another_rate); }),
              EndsWith("; there is no checkpoint yet; start the command again"));
}

TEST_F(TrainerTest, WritesTheRunFolder) {
  const TrainOutcome outcome = run("a", kEveryStepLogged);
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.evaluation.images, 50);
  for (const char* file : {"config.toml", "log.txt", "metrics.jsonl", "timing.csv", "checkpoints/latest"})
    EXPECT_TRUE(fs::exists(path("a") + "/" + file)) << file;
  EXPECT_EQ(losses(path("a")).size(), 20u);
  const RunState state = load_checkpoint_state(*newest_checkpoint(path("a")));
  EXPECT_EQ(state.step, 20);
  EXPECT_EQ(state.epoch, 4);
  EXPECT_EQ(state.evaluated_step, 20);
  EXPECT_GT(state.best_step, 0);
  EXPECT_EQ(state.images_in_epoch, 0);
}

TEST_F(TrainerTest, TheResolvedRecipeRepeatsTheRun) {
  run("a", kEveryStepLogged);
  TrainOptions options;
  options.out = path("b");
  options.threads = 1;
  train(read_settings(path("a") + "/config.toml"), options);
  EXPECT_EQ(read_file(weights_of("a")), read_file(weights_of("b")));
}

TEST_F(TrainerTest, AStopSignalWritesACheckpointAndTheRunResumes) {
  request_stop(true);
  const TrainOutcome stopped = run("a", kEveryStepLogged);
  request_stop(false);
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("a"))).step, 1);
  EXPECT_TRUE(run("a", kEveryStepLogged, "auto").finished);
  run("whole", kEveryStepLogged);
  EXPECT_EQ(read_file(weights_of("a")), read_file(weights_of("whole")));
}

TEST_F(TrainerTest, AStopSignalDuringTheLastStepFindsTheRunFinished) {
  request_stop(true);
  const TrainOutcome outcome = run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "1"}}));
  request_stop(false);
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.evaluation.images, 50);
}

TEST_F(TrainerTest, EvaluatingTheWeightsGivesTheAccuracyOfTheRun) {
  for (const char* workers : {"1", "3"}) {
    const TrainOutcome outcome =
        run(std::string("a") + workers, merged(kEveryStepLogged, {{"parallel.workers", workers}}));
    for (const char* strategy : {"dp", "dp-zero", "dp-star", "ps", "owt-a", "owt-b", "owt-c", "owt-d", "mp"}) {
      const Overrides on_two{{"parallel.workers", "2"}, {"parallel.strategy", strategy}};
      const Evaluation again =
          evaluate_file(small_settings(kSmallRecipe, on_two), {weights_of(std::string("a") + workers), "", 1});
      EXPECT_EQ(again.images, 50);
      EXPECT_EQ(again.top1, outcome.evaluation.top1);
      EXPECT_EQ(again.top5, outcome.evaluation.top5);
      EXPECT_NEAR(again.loss, outcome.evaluation.loss, 1e-5);
    }
  }
}

const Overrides kAFifthHeldOut = merged(kEveryStepLogged, {{"data.validation", "0.2"}});

TEST_F(TrainerTest, IsEvaluatedOnTheImagesThatAreHeldOutForEveryNumberOfRanks) {
  const TrainOutcome one = run("one", kAFifthHeldOut);
  EXPECT_EQ(one.evaluation.images, 20);
  EXPECT_THAT(read_file(path("one") + "/log.txt"),
              AllOf(HasSubstr("80 training and 20 validation images"), HasSubstr("epoch 4, step 16: validation loss")));
  EXPECT_THAT(evaluations(path("one")), ::testing::Each(HasSubstr(R"("split":"val")")));
  for (const char* strategy :
       {"dp", "dp-zero", "dp-star", "ps", "owt-a", "owt-b", "owt-c", "owt-d", "mp", "mp-dense"}) {
    const Overrides three{{"parallel.workers", "3"}, {"parallel.strategy", strategy}};
    EXPECT_NEAR(run(strategy, merged(kAFifthHeldOut, three)).evaluation.loss, one.evaluation.loss, 1e-4) << strategy;
    const Evaluation again = evaluate_file(read_settings(path("one") + "/config.toml", three),
                                           {weights_of("one"), "", 1, {.split = Split::kValidation}, path("one")});
    EXPECT_EQ(again.images, 20) << strategy;
    EXPECT_EQ(again.top1, one.evaluation.top1) << strategy;
    EXPECT_NEAR(again.loss, one.evaluation.loss, 1e-5) << strategy;
  }
  EXPECT_EQ(evaluate_file(read_settings(path("one") + "/config.toml"), {weights_of("one"), "", 1}).images, 50);
}

TEST_F(TrainerTest, HeldOutImagesAreTheSameInAResumedRun) {
  run("whole", kAFifthHeldOut);
  run("a", merged(kAFifthHeldOut, {{"schedule.max_steps", "6"}, {"run.seed", "5"}}));
  // With the seed of the checkpoint, whatever is asked for.
  run("a", merged(kAFifthHeldOut, {{"run.seed", "6"}}), "auto");
  run("b", merged(kAFifthHeldOut, {{"run.seed", "5"}}));
  EXPECT_EQ(read_file(weights_of("a")), read_file(weights_of("b")));
  EXPECT_NE(read_file(weights_of("a")), read_file(weights_of("whole")));
  EXPECT_EQ(evaluations(path("a")).back(), evaluations(path("b")).back());
  EXPECT_THAT(message_of([&] {
                run("a", merged(kAFifthHeldOut, {{"data.validation", "0.3"}}), "auto");
              }),
              AllOf(HasSubstr("was made with 80 training images, the data has 70 beside 30 that "
                              "data.validation holds out; give the same data")));
}

TEST_F(TrainerTest, ImagesThatAnotherRecipeHoldsOutAreRefused) {
  run("a", kAFifthHeldOut);
  // A file such as `owt average` writes.
  std::filesystem::copy_file(weights_of("a"), path("a/average.safetensors"));
  EXPECT_THAT(message_of([&] {
                evaluate_file(small_settings(kSmallRecipe, merged(kAFifthHeldOut, {{"run.seed", "99"}})),
                              {path("a/average.safetensors"), "", 1, {.split = Split::kValidation}});
              }),
              HasSubstr("average.safetensors has seed 7"));
  for (const Overrides& other : {Overrides{{"run.seed", "99"}}, Overrides{{"data.validation", "30"}}})
    EXPECT_THAT(message_of([&] {
                  evaluate_file(small_settings(kSmallRecipe, merged(kAFifthHeldOut, other)),
                                {weights_of("a"), "", 1, {.split = Split::kValidation}});
                }),
                AllOf(HasSubstr("has seed 7 and was trained on 80 images"),
                      HasSubstr("give the run folder instead of the recipe")));
}

TEST_F(TrainerTest, StartsFromAWeightsFile) {
  run("first", kEveryStepLogged);
  const Overrides still = merged(kEveryStepLogged, {{"optimizer.learning_rate", "1e-30"}, {"optimizer.decay", "0"}});
  run("second", still, "", weights_of("first"));
  EXPECT_EQ(read_file(weights_of("second")), read_file(weights_of("first")));
}

TEST_F(TrainerTest, RefusesToOverwriteARun) {
  run("a", kEveryStepLogged);
  try {
    run("a", kEveryStepLogged);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--resume auto"));
  }
}

TEST_F(TrainerTest, TheFirstOfTheBestEvaluationsIsACheckpoint) {
  run("a", merged(kEveryStepLogged, {{"optimizer.learning_rate", "1e-30"}, {"run.checkpoint_every_epochs", "0"}}));
  const RunState state = load_checkpoint_state(*newest_checkpoint(path("a")));
  EXPECT_EQ(state.best_step, 5);
  EXPECT_EQ(best_checkpoint(path("a")), path("a") + "/checkpoints/step-00000005");
}

TEST_F(TrainerTest, WeightsThatAreNotFiniteNeverBecomeACheckpoint) {
  EXPECT_THAT(message_of([&] {
                run("a", merged(kEveryStepLogged, {{"optimizer.learning_rate", "1e38"},
                                                   {"optimizer.decay", "1e6"},
                                                   {"run.checkpoint_every_steps", "1"}}));
              }),
              AllOf(HasSubstr("not finite"), HasSubstr("; there is no checkpoint yet")));
  EXPECT_FALSE(newest_checkpoint(path("a")).has_value());
}

TEST_F(TrainerTest, WeightsOfAnotherShapeNameTheTensor) {
  run("a", kEveryStepLogged);
  Overrides wider = kEveryStepLogged;
  std::string recipe = kSmallRecipe;
  recipe.replace(recipe.find("out = 22"), 8, "out = 23");
  try {
    evaluate_file(small_settings(recipe), {weights_of("a"), "", 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("fc1.weight"));
  }
}

TEST_F(TrainerTest, WeightsOfAnotherOrderNameTheTensor) {
  SafetensorsWriter file(path("turned"), {{"conv1.weight", {3, 16, 3, 3}}});
  file.write("conv1.weight", std::vector<float>(16 * 27));
  file.finish();
  EXPECT_THAT(message_of([&] { run("a", kEveryStepLogged, "", path("turned")); }),
              HasSubstr("tensor 'conv1.weight' is 3x16x3x3, the model wants 16x3x3x3"));
}

TEST_F(TrainerTest, ANotFiniteLossKeepsTheLastGoodCheckpoint) {
  run("a", merged(kEveryStepLogged, {{"schedule.max_steps", "5"}}));
  const std::string good = read_file(weights_of("a"));
  const auto diverge = [&](const std::string& out, const std::string& resume) {
    run(out, merged(kEveryStepLogged, {{"optimizer.learning_rate", "1e20"}, {"parallel.workers", "2"}}), resume);
  };
  EXPECT_THAT(message_of([&] { diverge("a", "auto"); }), HasSubstr("; the last checkpoint is kept (step 5)"));
  EXPECT_THAT(message_of([&] { diverge("b", path("a")); }), HasSubstr("; there is no checkpoint since the resume"));
  EXPECT_EQ(read_file(weights_of("a")), good);
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path("a"))).step, 5);
}

TEST_F(TrainerTest, ARunFoldersNameMayBeAnyBytes) {
  const std::string out = "run \xff\xfe";
  run(out, merged(kEveryStepLogged, {{"schedule.max_steps", "2"}}));
  run(out, merged(kEveryStepLogged, {{"schedule.max_steps", "3"}}), "auto");
  EXPECT_EQ(load_checkpoint_state(*newest_checkpoint(path(out))).step, 3);
}

TEST_F(TrainerTest, AnUnwritableRunFolderIsAnError) {
  write_bytes(path("file"), "x");
  EXPECT_THROW(run("file/run", kEveryStepLogged), Error);
}

TEST_F(TrainerTest, ARunReportsHowABatchIsDividedUnevenly) {
  const auto log = [&](const std::string& out, const Overrides& changes) {
    run(out, merged(kEveryStepLogged, merged({{"parallel.strategy", "dp"}, {"schedule.max_steps", "1"}}, changes)));
    return read_file(path(out) + "/log.txt");
  };
  EXPECT_THAT(log("five", {{"parallel.workers", "5"}}),
              AllOf(HasSubstr("24 images per step, 5 + 5 + 5 + 5 + 4 per worker"),
                    HasSubstr("a step's images are dealt as evenly as possible: 5 + 5 + 5 + 5 + 4"),
                    Not(HasSubstr("no images in any step"))));
  EXPECT_THAT(log("even", {{"parallel.workers", "3"}}), Not(HasSubstr("as evenly as possible")));
  EXPECT_THAT(log("asked", {{"parallel.workers", "2"}, {"parallel.shares", "[2, 1]"}}),
              Not(HasSubstr("as evenly as possible")));
  EXPECT_THAT(log("idle", {{"parallel.workers", "3"}, {"data.batch", "2"}}),
              HasSubstr("1 of 3 workers has no images in any step; use fewer workers, or a larger batch (data.batch)"));
}

TEST_F(TrainerTest, TimingKnowsThatAStepHasNoMoreImagesThanTheData) {
  TrainOptions options;
  options.out = path("a");
  options.threads = 1;
  options.timing = true;
  testing::internal::CaptureStdout();
  train(small_settings(kSmallRecipe, merged(kEveryStepLogged, {{"data.batch", "1000"}})), options);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("steps of 100 images"));
}

TEST_F(TrainerTest, RunningAveragesAreNoParametersOfTheFirstLogLine) {
  const std::string recipe = recipe_of("[3, 8, 8]", "train_images = 4\nside = 8\nbatch = 4", R"(
  { name = "pool", type = "global_avg_pool" },
  { name = "fc1", type = "dense", out = 10000 },
  { name = "norm", type = "batch_norm" },
  { name = "fc2", type = "dense", out = 10 })");
  TrainOptions options;
  options.out = path("a");
  options.threads = 1;
  train(small_settings(recipe, {{"schedule.max_steps", "1"}, {"parallel.strategy", "dp"}}), options);
  // fc1 has 40,000, norm 20,000 and as many averages, fc2 100,010.
  EXPECT_THAT(read_file(path("a") + "/log.txt"), HasSubstr("0.16 M parameters"));
}

// A small network must fit the synthetic classes, on two ranks under scheme c.
TEST_F(TrainerTest, LearnsTheSyntheticClasses) {
  const std::string recipe =
      recipe_of("[3, 16, 16]", "train_images = 4000\nbatch = 40\naugment = { scale = 0.016, mean = \"channel\" }", R"(
  { name = "conv1", type = "conv", out = 16, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 2 },
  { name = "conv2", type = "conv", out = 32, kernel = 3, pad = 1, init = { type = "msra" } },
  { name = "relu2", type = "relu" },
  { name = "pool2", type = "max_pool", kernel = 2 },
  { name = "fc1", type = "dense", out = 64, init = { type = "msra" } },
  { name = "relu3", type = "relu" },
  { name = "fc2", type = "dense", out = 10 })",
                0.02);
  TrainOptions options;
  options.out = path("learner");
  options.threads = 2;
  const TrainOutcome outcome = train(small_settings(recipe, {{"data.test_images", "500"},
                                                             {"schedule.epochs", "6"},
                                                             {"schedule.type", "cosine"},
                                                             {"parallel.workers", "2"},
                                                             {"parallel.strategy", "owt-c"}}),
                                     options);
  EXPECT_GT(outcome.evaluation.top1, 0.7);
}

}  // namespace
}  // namespace owt::trainer_test

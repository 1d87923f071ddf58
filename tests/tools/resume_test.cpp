// Commands that begin a run, resume one, or fail: what they change and print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/support/program.h"

namespace owt::resume_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ResumeCommands : public ProgramTest {
 protected:
  // Every file and folder below, with the bytes of the files.
  static std::map<std::string, std::string> snapshot(const std::string& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      all[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path().string()) : "";
    return all;
  }
  // The same recipe with another first dense layer.
  std::string other_recipe() const {
    std::string text = kSmallRecipe;
    text.replace(text.find("out = 22"), 8, "out = 23");
    return write("other.toml", text);
  }
  Result train(const std::string& words) const { return owt("train " + words); }
};

TEST_F(ResumeCommands, AFailedCommandChangesNoByteOfARunAndLeavesNoFolder) {
  const std::string recipe = small_recipe(), run = file("run"), other = other_recipe();
  ASSERT_EQ(train(recipe + " --steps 2 --out " + run).code, 0);
  const auto before = snapshot(run);
  for (const std::string& words :
       {other + " --resume auto --out " + run, recipe + " --out " + run, other + " --out " + run,
        recipe + " --resume auto --set data.train_images=80 --out " + run,
        recipe + " --resume auto --set optimizer.type=adamw --set optimizer.momentum= --out " + run,
        recipe + " --resume auto --workers 3 --parallel pipeline --set 'pipeline.stages=[\"none\"]' --out " + run, run,
        "--resume " + run + "/checkpoints/none"}) {
    const Result result = train(words);
    EXPECT_EQ(result.code, 1) << words << result.err;
    EXPECT_EQ(snapshot(run), before) << words;
  }
  for (const std::string& words :
       {"--weights " + run + "/config.toml", std::string("--data none --set data.format=cifar10"),
        "--weights " + run + " --set model=" + other}) {
    EXPECT_EQ(train(recipe + " " + words + " --out " + file("new/run")).code, 1) << words;
    EXPECT_FALSE(fs::exists(file("new"))) << words;
  }
}

TEST_F(ResumeCommands, ARunResumesWithItsOwnRecipe) {
  const std::string recipe = small_recipe(), run = file("run"), whole = file("whole");
  const std::string how =
      " --workers 2 --parallel owt-c --set data.batch=20 --set optimizer.learning_rate=0.01 --epochs 2";
  ASSERT_EQ(train(recipe + how + " --out " + whole).code, 0);
  ASSERT_EQ(train(recipe + how + " --steps 3 --out " + run).code, 0);
  const Result nothing = train(run + " --resume auto");
  EXPECT_EQ(nothing.code, 0);
  EXPECT_THAT(nothing.err, HasSubstr("step 3 of 3: already finished"));
  EXPECT_FALSE(fs::exists(run + "/config.toml.1"));

  const Result some = train(run + " --resume auto --steps 6");
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_THAT(some.err, AllOf(HasSubstr("schedule.max_steps: 3 -> 6"), HasSubstr("strategy owt-c"),
                              HasSubstr("20 images per step"), HasSubstr("kept as " + run + "/config.toml.1")));
  EXPECT_THAT(read_file(run + "/config.toml.1"), HasSubstr("max_steps = 3"));
  const Result rest = train("--resume " + run + " --set schedule.max_steps=");
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("step 6 of 10"));
  EXPECT_EQ(read_file(run + "/checkpoints/step-00000010/weights.safetensors"),
            read_file(whole + "/checkpoints/step-00000010/weights.safetensors"));
  EXPECT_FALSE(fs::exists("runs/config"));
}

TEST_F(ResumeCommands, WhatNobodySaysOfTheWorkersStaysAsInTheRun) {
  const std::string recipe = small_recipe(), run = file("run");
  ASSERT_EQ(train(recipe + " --workers 4 --parallel owt-c --set parallel.model_ranks=2 --steps 2 --out " + run).code,
            0);
  const Result same = train(recipe + " --steps 3 --resume auto --out " + run);
  EXPECT_THAT(same.err, AllOf(HasSubstr("because neither the recipe nor the command line sets them"),
                              HasSubstr("4 workers"), HasSubstr("strategy owt-c"),
                              HasSubstr("schedule.max_steps: 2 -> 3"), Not(HasSubstr("parallel.model_ranks:"))));
  const Result fewer = train(recipe + " --steps 4 --workers 3 --resume auto --out " + run);
  EXPECT_EQ(fewer.code, 0) << fewer.err;
  EXPECT_THAT(fewer.err, AllOf(HasSubstr("3 workers"), HasSubstr("strategy owt-c"),
                               HasSubstr("parallel.workers: 4 -> 3"), HasSubstr("parallel.model_ranks: 2 -> none")));
  const Result other = train(recipe + " --steps 5 --parallel dp --resume auto --out " + run);
  EXPECT_THAT(other.err, AllOf(HasSubstr("3 workers"), HasSubstr("strategy dp,")));
}

TEST_F(ResumeCommands, NumbersThatCountWorkersGoWithTheWorkers) {
  const std::string recipe = small_recipe(), run = file("run");
  const std::string grid = recipe + " --workers 4 --parallel owt-a --set parallel.model_ranks=2";
  ASSERT_EQ(train(grid + " --steps 2 --out " + run).code, 0);
  const Result same = train(recipe + " --workers 4 --steps 3 --resume auto --out " + run);
  EXPECT_THAT(same.err, AllOf(HasSubstr("4 workers"), Not(HasSubstr("parallel.model_ranks:"))));
  const Result fewer = train(run + " --resume auto --workers 3 --steps 4");
  EXPECT_EQ(fewer.code, 0) << fewer.err;
  EXPECT_THAT(fewer.err, AllOf(HasSubstr("3 workers"), HasSubstr("parallel.model_ranks: 2 -> none")));
}

TEST_F(ResumeCommands, DamagedMetricsAreFoundBeforeAnythingIsChanged) {
  const std::string run = file("run");
  ASSERT_EQ(train(small_recipe() + " --steps 2 --out " + run).code, 0);
  write_bytes(run + "/metrics.jsonl", "{\"step\":-1}\n" + read_file(run + "/metrics.jsonl"));
  const auto before = snapshot(run);
  const Result result = train(run + " --resume auto --steps 3");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("metrics.jsonl:1"));
  EXPECT_EQ(snapshot(run), before);
}

TEST_F(ResumeCommands, AutoSaysWhereThereIsNothingToResume) {
  const std::string recipe = small_recipe(), run = file("run");
  const Result fresh = train(recipe + " --steps 2 --resume auto --out " + run);
  EXPECT_EQ(fresh.code, 0);
  EXPECT_THAT(fresh.err, HasSubstr("nothing to resume: " + run + " has no checkpoint; starting at step 0"));
  EXPECT_THAT(read_file(run + "/log.txt"), HasSubstr("nothing to resume"));
  // The state of a run that was killed before its first checkpoint.
  fs::remove_all(run + "/checkpoints");
  const auto before = snapshot(run);
  const Result taken = train(recipe + " --out " + run);
  EXPECT_EQ(taken.code, 1);
  EXPECT_THAT(taken.err, AllOf(HasSubstr("holds a run already"), HasSubstr("without a checkpoint yet")));
  const Result other = train(other_recipe() + " --resume auto --out " + run);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, AllOf(HasSubstr("the log of another run"), HasSubstr("model.layer.fc1.out: 22 -> 23")));
  EXPECT_EQ(snapshot(run), before);
  EXPECT_EQ(train(recipe + " --steps 2 --resume auto --out " + run).code, 0);
}

TEST_F(ResumeCommands, WithoutARecipeARunMustBeNamed) {
  for (const char* words : {"", "--resume auto"}) {
    const Result result = train(words);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr("missing CONFIG"), HasSubstr("--resume RUN")));
  }
  const Result none = train("--resume " + file("none"));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("there is no such run or checkpoint folder"));
}

TEST_F(ResumeCommands, ASimulationHasARunFolderOfItsOwnAndForTimesOnlyNone) {
  small_recipe();
  const auto simulate = [&](const std::string& words) {
    return owt("simulate small.toml --workers 2 --steps 2 --gpu H100 " + words, "cd " + folder_.path() + ";");
  };
  const Result times = simulate("--times-only");
  EXPECT_EQ(times.code, 0) << times.err;
  EXPECT_THAT(times.out, Not(HasSubstr("run folder")));
  EXPECT_FALSE(fs::exists(file("runs")));
  EXPECT_EQ(simulate("--times-only --out " + file("times")).code, 0);
  EXPECT_TRUE(fs::exists(file("times/metrics.jsonl")));
  EXPECT_EQ(train(file("small.toml") + " --out " + file("times")).code, 1);

  EXPECT_EQ(simulate("").code, 0);
  EXPECT_TRUE(fs::exists(file("runs/small-simulated/metrics.jsonl")));
  EXPECT_FALSE(fs::exists(file("runs/small")));
}

}  // namespace
}  // namespace owt::resume_test

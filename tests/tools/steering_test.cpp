// Steering a run from the command line: short options, other programs' words, less and more output, completion, JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "src/system/files.h"
#include "tests/support/program.h"

namespace owt::steering_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

class Steering : public ProgramTest {
 protected:
  // What `completion words` prints, without the descriptions, as one line.
  std::string completed(const std::string& words) const {
    std::istringstream lines(owt("completion words " + words).out);
    std::string all;
    for (std::string line; std::getline(lines, line);) all += line.substr(0, line.find('\t')) + ' ';
    return all;
  }
  Json json_of(const std::string& words) const {
    const Result result = owt(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out);
  }
};

TEST_F(Steering, RateAndBatchHaveOptions) {
  const Result run = owt("train " + small_recipe() + " --steps 1 --lr 0.25 --batch 10 --out " + file("run"));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("10 images per step"), HasSubstr("learning rate 0.25;")));
  EXPECT_THAT(read_file(file("run/config.toml")), AllOf(HasSubstr("learning_rate = 0.25"), HasSubstr("batch = 10")));
  EXPECT_THAT(owt("train " + small_recipe() + " --lr 0").err, HasSubstr("--lr is '0', wanted a number that is more"));
  EXPECT_THAT(owt("train " + small_recipe() + " --batch 0").err, HasSubstr("--batch is '0', wanted an integer"));
}

TEST_F(Steering, ABatchReplacesTheBatchOfEachWorker) {
  const std::string recipe = "inspect " + config("imagenet_alexnet.toml") + " --device cpu --workers 2 ";
  EXPECT_THAT(owt(recipe).out, HasSubstr(" 256 images per step"));
  EXPECT_THAT(owt(recipe + "--batch 8").out, HasSubstr(" 8 images per step"));
}

TEST_F(Steering, OtherProgramsWordsLeadToTheOption) {
  const auto said = [&](const std::string& words) { return owt("train " + small_recipe() + " " + words).err; };
  EXPECT_THAT(said("--batch-size 8"), HasSubstr("did you mean '--batch'?"));
  EXPECT_THAT(said("--learning_rate 1"), HasSubstr("did you mean '--lr'?"));
  EXPECT_THAT(said("--gpus 2"), HasSubstr("did you mean '--workers'?"));
  EXPECT_THAT(said("--pretrained w"), HasSubstr("did you mean '--weights'?"));
  EXPECT_THAT(said("--weight-decay 1"), HasSubstr("--set optimizer.decay=VALUE"));
  EXPECT_THAT(said("--set lr=1"), HasSubstr("did you mean 'optimizer.learning_rate'?"));
}

TEST_F(Steering, AShorterRunMovesItsMilestonesInProportion) {
  std::string text = read_file(small_recipe());
  text.replace(text.find("[schedule]"), 10, "[schedule]\nwarmup_epochs = 1.0");
  const std::string train = "train " + write("warm.toml", text) + " --steps 1 --out ";
  const Result whole = owt(train + file("whole"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(whole.err, Not(HasSubstr("shorter")));
  const Result half = owt(train + file("half") + " --epochs 0.5");
  ASSERT_EQ(half.code, 0) << half.err;
  EXPECT_THAT(half.err, HasSubstr("the run is shorter than the recipe's: schedule.warmup_epochs = "));
  EXPECT_THAT(owt(train + file("set") + " --epochs 0.5 --set schedule.warmup_epochs=0.1").err,
              Not(HasSubstr("shorter")));
}

TEST_F(Steering, AShorterRunWithoutEpochsMovesItsWarmUpInProportion) {
  std::string text = read_file(small_recipe());
  text.replace(text.find("[schedule]"), 10,
               "[schedule]\nmax_steps = 40\ntype = \"cosine\"\nwarmup_epochs = 0.5\n[schedule_before]");
  text.resize(text.find("[schedule_before]"));
  const std::string train = "train " + write("warm.toml", text) + " --out ";
  const Result shorter = owt(train + file("shorter") + " --steps 4");
  ASSERT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_THAT(shorter.err, HasSubstr("the run is shorter than the recipe's: schedule.warmup_epochs = 0.05"));
  const Result set = owt(train + file("set") + " --set schedule.max_steps=1");
  EXPECT_EQ(set.code, 1);
  EXPECT_THAT(set.err, HasSubstr("every step would have the learning rate 0: the run has 1 steps"));
}

TEST_F(Steering, QuietPrintsResultsOnlyAndVerboseDetailsToo) {
  const std::string train = "train " + small_recipe() + " --steps 2 --out ";
  const Result quiet = owt(train + file("quiet") + " -q");
  ASSERT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_THAT(quiet.err, IsEmpty());
  EXPECT_THAT(quiet.out, HasSubstr("accuracy: top-1"));
  EXPECT_THAT(read_file(file("quiet/log.txt")), HasSubstr("model small"));
  EXPECT_THAT(owt(train + file("verbose") + " -v").err, AllOf(HasSubstr("model small"), HasSubstr("convolution ")));
  EXPECT_EQ(owt(train + file("both") + " -q -v").code, 2);
}

TEST_F(Steering, CompletionKnowsCommandsOptionsValuesAndRecipes) {
  EXPECT_EQ(completed("tra"), "train ");
  EXPECT_EQ(completed("help tim"), "time ");
  EXPECT_EQ(completed("prepare syn"), "synthetic ");
  EXPECT_EQ(completed("prepare folder --val"), "--validation ");
  EXPECT_EQ(completed("train x --precision ''"), "fp32 tf32 bf16 ");
  EXPECT_EQ(completed("train x --resume ''"), "auto ");
  EXPECT_EQ(completed("train x --out ''"), "") << "the shell completes files";
  EXPECT_EQ(completed("train cifar10_qui"), "cifar10_quick ");
  EXPECT_THAT(owt("completion words train --resu").out, StartsWith("--resume\tauto"));
  EXPECT_EQ(owt("completion tcsh").code, 2);
  for (const std::string shell : {"bash", "zsh", "fish"})
    EXPECT_THAT(owt("completion " + shell).out, AllOf(HasSubstr("for " + shell), HasSubstr("completion words")));
}

TEST_F(Steering, ScriptsGetJson) {
  EXPECT_GE(json_of("devices --json").at("cores"), 1);
  const Json recipes = json_of("recipes --json");
  EXPECT_GT(recipes.size(), 10u);
  const Json model = json_of("inspect " + small_recipe() + " --json");
  EXPECT_EQ(model.at("layers").at(0).at("name"), "conv1");
  EXPECT_EQ(model.at("classes"), 10);
  const Json check = json_of("check " + small_recipe() + " --samples 1 --workers 2 --json");
  EXPECT_EQ(check.at("wrong"), false);
  EXPECT_EQ(check.at("parameters").at(0).at("loss"), "right");
  const Json trained = json_of("train " + small_recipe() + " --steps 2 --json - --out " + file("run"));
  EXPECT_EQ(trained.at("run"), file("run"));
  const Json evaluated = json_of("eval " + file("run") + " --json -");
  EXPECT_EQ(trained.at("weights"), evaluated.at("weights"));
  EXPECT_EQ(trained.at("top1"), evaluated.at("top1"));
  ASSERT_EQ(owt("prepare synthetic " + file("data") + " --train 50 --test 10").code, 0);
  const Json data = json_of("inspect " + file("data") + " --json");
  EXPECT_EQ(data.at("splits").at(0).at("images"), 50);
  EXPECT_EQ(data.at("splits").at(0).at("classes").size(), 10u);
}

TEST_F(Steering, LatestMeansTheCheckpointThatItNames) {
  ASSERT_EQ(owt("train " + small_recipe() + " --steps 2 --out " + file("run")).code, 0);
  const std::string latest = file("run/checkpoints/latest");
  EXPECT_EQ(json_of("inspect " + latest + " --json").at("step"), 2);
  EXPECT_EQ(json_of("inspect " + latest + "/weights.safetensors --json").at("tensors").at(0).at("name"),
            "conv1.weight");
  EXPECT_EQ(owt("eval " + file("run") + " --weights " + latest).code, 0);
  const Result resumed = owt("train --steps 3 --resume " + latest);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("at step 2 of 3"));
}

}  // namespace
}  // namespace owt::steering_test

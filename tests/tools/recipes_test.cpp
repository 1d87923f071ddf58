// Recipes by name: the folders that are searched, and the message for an unknown name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "tests/support/program.h"

namespace owt::recipes_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

class RecipesTest : public ProgramTest {
 protected:
  // Runs the program in a folder of the test.
  Result owt_in(const std::string& folder, const std::string& words) const {
    fs::create_directories(file(folder));
    return owt(words, "cd '" + file(folder) + "';");
  }
  void write_recipe(const std::string& name, const std::string& model_name) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    std::string text = kSmallRecipe;
    text.replace(text.find("\"small\""), 7, "\"" + model_name + "\"");
    write(name, text);
  }
};

TEST_F(RecipesTest, OfTheSourceTreeAreFoundFromAnyFolder) {
  const Result recipe = owt_in("elsewhere", "plan cifar10_quick"), model = owt_in("elsewhere", "plan alexnet_owt.toml");
  EXPECT_EQ(recipe.code, 0) << recipe.err;
  EXPECT_THAT(recipe.out, HasSubstr("conv1"));
  EXPECT_EQ(model.code, 0) << model.err;
  EXPECT_THAT(model.out, HasSubstr("fc6"));
}

TEST_F(RecipesTest, EveryCommandThatTakesARecipeTakesItsName) {
  const std::string name = " cifar10_quikc", weights = " --weights none";
  for (const std::string& words :
       {"train" + name, "plan" + name, "time" + name, "inspect" + name, "eval" + name + weights,
        "extract" + name + weights + " --layer fc1 --out x.npy", "export" + name + weights + " --onnx x.onnx",
        "predict" + name + " photo.jpg" + weights}) {
    const Result result = owt_in("elsewhere", words);
    EXPECT_EQ(result.code, 1) << words << result.err;
    EXPECT_THAT(result.err, HasSubstr("did you mean 'cifar10_quick'?")) << words;
  }
}

TEST_F(RecipesTest, AFileComesBeforeTheFolderConfigsAndThatBeforeWhatCameWithTheProgram) {
  write_recipe("here/configs/models/cifar10_quick.toml", "in_models");
  EXPECT_THAT(owt_in("here", "inspect cifar10_quick").out, HasSubstr("model in_models"));
  write_recipe("here/configs/cifar10_quick.toml", "in_configs");
  EXPECT_THAT(owt_in("here", "inspect cifar10_quick").out, HasSubstr("model in_configs"));
  write_recipe("here/cifar10_quick.toml", "in_the_folder");
  EXPECT_THAT(owt_in("here", "inspect cifar10_quick.toml").out, HasSubstr("model in_the_folder"));
  EXPECT_THAT(owt_in("here", "inspect cifar10_quick").out, HasSubstr("model in_configs"));
}

TEST_F(RecipesTest, AFolderOfDataWithARecipesNameDoesNotHideIt) {
  fs::create_directories(file("here/cifar10_quick"));
  const Result result = owt_in("here", "plan cifar10_quick");
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(RecipesTest, ARunFolderOfARecipesNameIsTheRunAndSaysSo) {
  write_recipe("here/configs/mine.toml", "recipe");
  write_recipe("here/mine/config.toml", "run");
  const Result result = owt_in("here", "plan mine");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("mine means the run folder of that name; the recipe of that name is configs/mine.toml"));
  EXPECT_THAT(owt_in("here", "plan configs/mine.toml").err, Not(HasSubstr("means the run folder")));
}

TEST_F(RecipesTest, OfAnInstallationAreFoundNextToTheProgram) {
  fs::create_directories(file("usr/bin"));
  fs::copy(OWT_PROGRAM, file("usr/bin/owt"));
  write_recipe("usr/share/owt/configs/only_installed.toml", "installed");
  const std::string run = "cd /; '" + file("usr/bin/owt") + "' inspect only_installed >'" + file("answer") + "'; true ";
  owt("--version", run + ";");
  EXPECT_THAT(read_file(file("answer")), HasSubstr("model installed"));
}

TEST_F(RecipesTest, MaySayHowToTrainWithoutTheirDataSet) {
  const std::string here = "mkdir -p '" + file("here") + "'; cd '" + file("here") + "'; unset OWT_DATA;";
  const auto train = [&](const std::string& words) {
    return owt("train quickstart --steps 1 --device cpu --set data.batch=8 " + words, here);
  };
  const Result drawn = train("");
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_THAT(drawn.err, AllOf(HasSubstr("no cifar10 data in datasets: training on 5000 drawn images instead"),
                               HasSubstr("owt prepare cifar cifar-10-binary.tar.gz datasets")));
  EXPECT_EQ(owt_in("here", "eval runs/quickstart").code, 0);
  const Result named = train("--out b --data nowhere");
  EXPECT_EQ(named.code, 1);
  EXPECT_THAT(named.err, HasSubstr("no CIFAR-10 in nowhere"));
  owt_in("here", "prepare synthetic datasets --train 20 --test 10");
  const Result with_data = train("--out b");
  EXPECT_EQ(with_data.code, 0) << with_data.err;
  EXPECT_THAT(with_data.err, Not(HasSubstr("drawn images")));
}

TEST_F(RecipesTest, AnUnknownNameIsAnErrorWithTheFoldersSearchedAndTheNearestName) {
  const Result result = owt_in("elsewhere", "train cifar10_quikc");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("cifar10_quikc"), HasSubstr("/configs/models"),
                                HasSubstr("did you mean 'cifar10_quick'?")));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(owt_in("elsewhere", "train something_else").err, HasSubstr("'owt recipes' lists the names"));
}

TEST_F(RecipesTest, AreListedWithTheFirstLinesOfTheirFiles) {
  write_recipe("here/configs/my_own.toml", "mine");
  write("here/configs/broken.toml", "# Not yet right.\nmodel = \n");
  const Result result = owt_in("here", "recipes");
  EXPECT_EQ(result.code, 0);
  const size_t models = result.out.find("\nModels");
  ASSERT_NE(models, std::string::npos);
  EXPECT_THAT(result.out.substr(0, models), AllOf(HasSubstr("  my_own  "), ContainsRegex("\n  broken +Not yet right\n"),
                                                  ContainsRegex("\n  quickstart +A first network")));
  EXPECT_THAT(result.out.substr(models), AllOf(ContainsRegex("\n  alexnet_owt +AlexNet with one tower"),
                                               HasSubstr("\nTheir files are in configs, ")));
}

TEST_F(RecipesTest, OfTheProgramHaveADescriptionThatFitsALine) {
  const Result result = owt_in("elsewhere", "recipes");
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) continue;
    EXPECT_THAT(line, AllOf(ContainsRegex("^  [^ ]+  +[^ ]+ "), SizeIs(Le(112))));
  }
}

}  // namespace
}  // namespace owt::recipes_test

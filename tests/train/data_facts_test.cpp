#include "src/train/data_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::data_facts_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A format whose images do not exist.
Settings cifar_settings(const std::string& augment) {
  std::string recipe = kSmallRecipe;
  const size_t begin = recipe.find("format = \"synthetic\""), end = recipe.find("batch = 24");
  recipe.replace(begin, end - begin, "format = \"cifar10\"\n");
  return small_settings(recipe, {{"data.augment", augment}});
}
const char* const kPixelMean = "{ crop = 12, mean = \"pixel\", std = \"channel\" }";

DataFacts some_facts() {
  DataFacts facts;
  for (int i = 0; i < 32 * 32 * 3; ++i) facts.statistics.pixel_mean.push_back(i / 7.0);
  facts.statistics.channel_mean = {1.0 / 3, 2, 254.9999999999};
  facts.statistics.channel_std = {5, 6, 7};
  facts.class_names = {"n01440764 tench, Tinca tinca", "", "dog"};
  return facts;
}

TEST(DataFacts, ComeBackFromARunFolderAsTheyWere) {
  const TempFolder folder;
  const DataFacts facts = some_facts();
  write_data_facts(folder.path(), facts);
  const DataFacts found = find_data_facts(cifar_settings(kPixelMean), folder.path(), "");
  EXPECT_EQ(found.statistics.pixel_mean, facts.statistics.pixel_mean);
  EXPECT_EQ(found.statistics.channel_mean, facts.statistics.channel_mean);
  EXPECT_EQ(found.statistics.channel_std, facts.statistics.channel_std);
  EXPECT_EQ(found.class_names, facts.class_names);
}

TEST(DataFacts, MissingStatisticsAreAnErrorOnlyWhereTheRecipeWantsThem) {
  const TempFolder folder;
  for (const std::string& run : {folder.path(), std::string()})
    EXPECT_THAT(message_of([&] { find_data_facts(cifar_settings(kPixelMean), run, ""); }),
                AllOf(HasSubstr("statistics.json"), HasSubstr("--data DIR")));
  const DataFacts none = find_data_facts(cifar_settings("{ crop = 12, mean = [1, 2, 3] }"), folder.path(), "");
  EXPECT_THAT(none.class_names, IsEmpty());
}

TEST(DataFacts, DamagedOrForeignStatisticsAreAnErrorThatNamesTheFile) {
  const TempFolder folder;
  const auto expect_error = [&](const std::string& text, const std::string& why) {
    write_bytes(folder.file("statistics.json"), text);
    EXPECT_THAT(message_of([&] { find_data_facts(cifar_settings(kPixelMean), folder.path(), ""); }),
                AllOf(HasSubstr(folder.file("statistics.json")), HasSubstr(why)));
  };
  expect_error("{\"pixel_mean\": [1, 2", "no JSON");
  expect_error("{\"pixel_mean\": \"much\"}", "damaged");
  expect_error("{\"pixel_mean\": " + nested(1'000'000) + "}", "nested deeper than 64 levels");
  expect_error("{\"pixel_mean\": [1, 2, 3]}", "'pixel_mean' has 3 values, the recipe wants 3072");
}

// The lists of a recipe for shards that needs all of them.
TEST(DataFacts, EveryListHasTheLengthThatTheRecipeWants) {
  const TempFolder folder;
  std::string recipe = kSmallRecipe;
  const size_t begin = recipe.find("format = \"synthetic\""), end = recipe.find("batch = 24");
  recipe.replace(begin, end - begin, "format = \"shards\"\n");
  const Settings settings =
      small_settings(recipe, {{"data.augment", "{ crop = 12, mean = \"channel\", std = \"channel\", pca = 0.1 }"}});
  DataFacts whole;
  whole.statistics.channel_mean = whole.statistics.channel_std = whole.statistics.eigenvalues = {1, 2, 3};
  whole.statistics.covariance = whole.statistics.eigenvectors = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  write_data_facts(folder.path(), whole);
  EXPECT_EQ(find_data_facts(settings, folder.path(), "").statistics.eigenvectors, whole.statistics.eigenvectors);
  for (const auto& [list, name] : {std::pair(&DatasetStatistics::channel_mean, "channel_mean"),
                                   {&DatasetStatistics::channel_std, "channel_std"},
                                   {&DatasetStatistics::eigenvalues, "eigenvalues"},
                                   {&DatasetStatistics::eigenvectors, "eigenvectors"}}) {
    DataFacts wrong = whole;
    (wrong.statistics.*list).push_back(4);
    write_data_facts(folder.path(), wrong);
    EXPECT_THAT(message_of([&] { find_data_facts(settings, folder.path(), ""); }),
                AllOf(HasSubstr(folder.file("statistics.json")), HasSubstr(concat("'", name, "'"))));
  }
}

// The network of an import has no run, so the class names come from --data.
TEST(DataFacts, NamesOfAnotherNumberOfClassesAreNotUsed) {
  TempFolder data;
  Settings settings = cifar_settings("{ crop = 12 }");
  settings.data.format = "shards";
  write_bytes(data.file("classes.txt"), "cat\ndog\n");
  testing::internal::CaptureStderr();
  EXPECT_THAT(find_data_facts(settings, "", data.path()).class_names, IsEmpty());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the names of the 2 classes in " + data.path()));
  settings.model.classes = 2;
  EXPECT_THAT(find_data_facts(settings, "", data.path()).class_names, ElementsAre("cat", "dog"));
}

class DataFactsOfRuns : public WholeRuns, public ::testing::Test {};

TEST_F(DataFactsOfRuns, TrainingWritesThoseOfItsData) {
  run("run", {{"schedule.max_steps", "1"}});
  const Settings settings = small_settings(kSmallRecipe);
  const DataFacts of_run = find_data_facts(settings, path("run"), ""), of_data = find_data_facts(settings, "", "");
  EXPECT_EQ(of_run.statistics.pixel_mean.size(), 16u * 16u * 3u);
  EXPECT_EQ(of_run.statistics.pixel_mean, of_data.statistics.pixel_mean);
  EXPECT_EQ(of_run.statistics.channel_std, of_data.statistics.channel_std);
  EXPECT_EQ(of_run.class_names, of_data.class_names);
}

}  // namespace
}  // namespace owt::data_facts_test

#include "src/train/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::job_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DataFolder, TheCommandLineComesBeforeTheRecipeAndThatBeforeTheEnvironment) {
  const char* const set = std::getenv("OWT_DATA");
  const std::string before = set ? set : "";
  DataSettings recipe;
  setenv("OWT_DATA", "environment", 1);
  EXPECT_EQ(data_folder(recipe, ""), "environment");
  recipe.dir = "recipe";
  EXPECT_EQ(data_folder(recipe, ""), "recipe");
  EXPECT_EQ(data_folder(recipe, "given"), "given");
  recipe.dir.clear();
  setenv("OWT_DATA", "", 1);
  EXPECT_EQ(data_folder(recipe, ""), "datasets");
  unsetenv("OWT_DATA");
  EXPECT_EQ(data_folder(recipe, ""), "datasets");
  if (set) setenv("OWT_DATA", before.c_str(), 1);
}

TEST(OpenSplit, SyntheticImagesAreAsTheRecipeSays) {
  const Settings settings = small_settings(kSmallRecipe, {{"data.seed", "5"}});
  const auto train = open_split(settings, "", Split::kTrain), test = open_split(settings, "", Split::kTest);
  EXPECT_EQ(train->size(), 100);
  EXPECT_EQ(test->size(), 50);
  EXPECT_EQ(train->image(), (Shape{16, 16, 3}));
  EXPECT_EQ(train->classes(), 10);
  const Settings other = small_settings(kSmallRecipe, {{"data.test_images", "100"}});
  EXPECT_NE(open_split(other, "", Split::kTrain)->checksum(), train->checksum());  // by the seed
  EXPECT_NE(open_split(other, "", Split::kTest)->checksum(), open_split(other, "", Split::kTrain)->checksum());
  EXPECT_EQ(open_split(small_settings(kSmallRecipe, {{"data.seed", "5"}}), "", Split::kTrain)->checksum(),
            train->checksum());
}

TEST(OpenSplit, HeldOutImagesAreNotTrainedOn) {
  const Settings plain = small_settings(kSmallRecipe),
                 settings = small_settings(kSmallRecipe, {{"data.validation", "0.2"}});
  const auto train = open_split(settings, "", Split::kTrain), held = open_split(settings, "", Split::kValidation);
  EXPECT_EQ(train->size(), 80);
  EXPECT_EQ(held->size(), 20);
  EXPECT_EQ(open_split(settings, "", Split::kTest)->checksum(), open_split(plain, "", Split::kTest)->checksum());
  const Settings other = small_settings(kSmallRecipe, {{"data.validation", "0.2"}, {"run.seed", "8"}});
  EXPECT_NE(open_split(other, "", Split::kValidation)->checksum(), held->checksum());
  EXPECT_THAT(message_of([&] { open_split(plain, "", Split::kValidation); }),
              HasSubstr("holds no validation images out; set data.validation"));
}

Job job_of(const Overrides& changes) {
  Job job;
  job.settings = small_settings(kSmallRecipe, changes);
  job.plan = job.settings.plan_to_run();
  return job;
}

TEST(OpenData, ADataSetHasTheClassesOfTheModelAndDrawnImagesMayHaveFewer) {
  Job job = job_of({});
  job.settings.model.classes = 12;
  open_data(job, "");
  EXPECT_EQ(job.train->classes(), 10);
  job = job_of({{"data.format", "synthetic"}});
  const auto images = open_split(job.settings, "", Split::kTest);
  ASSERT_EQ(images->classes(), 10);
  // Generated images have at most as many classes as the model; files have their own number.
  const TempFolder folder;
  job.settings.data.format = "cifar10";
  std::string record(1 + 32 * 32 * 3, '\0');
  write_bytes(folder.file("data_batch_1.bin"), record);
  write_bytes(folder.file("test_batch.bin"), record);
  job.settings.model.classes = 10;
  job.settings.data.augment = {};
  EXPECT_NO_THROW(open_data(job, folder.path()));
  EXPECT_NO_THROW(open_data(job, folder.path(), Split::kTest, {}));
  for (const int classes : {9, 11}) {
    job.settings.model.classes = classes;
    const std::string wanted = concat("has 10 classes, but model 'small' has ", classes);
    EXPECT_THAT(message_of([&] { open_data(job, folder.path()); }),
                AllOf(HasSubstr(wanted), HasSubstr("--classes data")));
    EXPECT_THAT(message_of([&] { open_data(job, folder.path(), Split::kTest, {}); }), HasSubstr(wanted));
  }
}

TEST(OpenData, WithHeldOutImagesTheTestImagesNeedNotBeThere) {
  const TempFolder folder;
  std::string records;
  for (char i = 0; i < 20; ++i) records.append(1, static_cast<char>(i % 10)).append(32 * 32 * 3, i);
  write_bytes(folder.file("data_batch_1.bin"), records);
  Job job = job_of({{"data.validation", "10"}});
  job.settings.data.format = "cifar10";
  job.settings.data.augment = {.mean = AugmentSettings::From::kChannel};
  open_data(job, folder.path());
  EXPECT_EQ(job.train->size(), 10);
  EXPECT_EQ(job.validation->size(), 10);
  EXPECT_EQ(job.test, nullptr);
  // Statistics of the training images, which `owt eval` computes too.
  EXPECT_EQ(job.statistics.channel_mean, compute_statistics(*job.train).channel_mean);
  Job again = job_of({});
  again.settings = job.settings;
  open_data(again, folder.path(), Split::kValidation, {});
  EXPECT_EQ(again.statistics.channel_mean, job.statistics.channel_mean);
  EXPECT_EQ(again.validation->checksum(), job.validation->checksum());
}

// All ranks' batches together are the images of the epoch, each once; one view after the other in evaluation.
TEST(Batches, OfAllRanksTogetherAreTheImagesOfTheEpoch) {
  Job job = job_of({{"parallel.workers", "3"}, {"data.augment", "{ crop = 12 }"}});
  open_data(job, "");
  for (const bool training : {true, false}) {
    int64_t rows = 0, steps = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const auto batches = training ? training_batches(job, rank, 0, job.plan.request.step_rows)
                                    : evaluation_batches(job, rank, Split::kTest, 2);
      steps = batches->steps_per_epoch();
      for (int64_t i = training ? 1 : 0; i < steps; ++i) {
        const Batch& batch = batches->next(Stream());
        EXPECT_EQ(batch.step_in_epoch, training ? i : i / 2);
        EXPECT_EQ(batch.view, training ? 0 : static_cast<int>(i % 2));
        EXPECT_EQ(batch.epoch, 0);
        rows += batch.images.shape().rows();
      }
    }
    EXPECT_EQ(steps, training ? 5 : 2 * 3);
    EXPECT_EQ(rows, training ? 100 - 24 : 2 * 50);
  }
}

}  // namespace
}  // namespace owt::job_test

#include "src/commands/measure_loading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/shards.h"

namespace owt::measure_loading_test {
namespace {

using ::testing::HasSubstr;

class MeasureLoading : public DeviceTest {
 protected:
  Settings settings(const Overrides& changes = {}) const {
    return small_settings(recipe_of("[3, 16, 16]", "batch = 4", R"({ name = "fc", type = "dense", out = 10 })"),
                          merged({{"data.format", "shards"},
                                  {"data.augment", "{ crop = 16, short_side = 20, mirror = true }"},
                                  {"data.test_images", ""},
                                  {"run.device", name_of(device())}},
                                 changes));
  }
  void write_photos() const { write_split(folder_.path(), "train", {.images = 10, .classes = 10}); }
  void write_pixels() const {
    std::string records;
    for (char i = 0; i < 8; ++i) records.append(1, i).append(32 * 32 * 3, i);
    write_bytes(folder_.file("data_batch_1.bin"), records);
  }

  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Devices, MeasureLoading, ::testing::ValuesIn(devices()), device_name);

// A GPU augments by itself, and images are sent to it.
TEST_P(MeasureLoading, OfPhotographsTimesEveryStageOfTheLoader) {
  write_photos();
  const bool gpu = device() == Device::kCuda;
  const LoadSpeed speed = measure_loading(settings({{"parallel.workers", "2"}, {"parallel.strategy", "dp"}}),
                                          folder_.path(), {.threads = 2, .seconds = 0.05});
  EXPECT_EQ(speed.set_images, 10);
  EXPECT_EQ(speed.workers, 2);
  EXPECT_EQ(speed.threads, 2);
  EXPECT_EQ(speed.on_gpu, gpu);
  EXPECT_FALSE(speed.resident());
  EXPECT_EQ(speed.images, speed.work.images);
  EXPECT_GE(speed.seconds, 0.05);
  for (const LoadStage stage : {LoadStage::kRead, LoadStage::kDecode, LoadStage::kResize})
    EXPECT_GT(speed.stage_s(stage), 0) << name_of(stage);
  EXPECT_EQ(speed.stage_s(LoadStage::kAugment) > 0, !gpu);
  EXPECT_EQ(speed.copy_s > 0, gpu);
  EXPECT_EQ(speed.images_per_core_s_for_gpu() > speed.images_per_core_s(), !gpu);
  double sum = speed.rest_s();
  for (int i = 0; i < kLoadStages; ++i) sum += speed.stage_s(static_cast<LoadStage>(i));
  EXPECT_NEAR(sum, speed.thread_s(), 1e-6 * sum);
}

TEST_P(MeasureLoading, OfAFirstReadEndsAfterAnEpoch) {
  write_photos();
  const LoadSpeed speed = measure_loading(settings(), folder_.path(), {.seconds = 1e4, .cold = true});
  EXPECT_GE(speed.images, 10);
  EXPECT_LT(speed.seconds, 1e4);
}

TEST_P(MeasureLoading, ImagesThatAGpuKeepsNeedNoLoader) {
  write_pixels();
  const Settings raw = settings({{"data.format", "cifar10"}, {"data.augment", "{ crop = 16 }"}});
  const LoadSpeed speed = measure_loading(raw, folder_.path(), {.seconds = 0.05});
  EXPECT_EQ(speed.resident(), device() == Device::kCuda);
  EXPECT_GT(speed.images, 0);
  EXPECT_THAT(message_of([&] { measure_loading(raw, folder_.path(), {.cold = true}); }),
              HasSubstr("prepared photographs only"));
}

TEST_P(MeasureLoading, DrawnImagesAreRefused) {
  EXPECT_THAT(message_of([] { measure_loading(small_settings(kSmallRecipe), "", {}); }), HasSubstr("draws its images"));
}

TEST(LoadNeed, IsMeasuredWherePhotographsAreAndElseDocumented) {
  const TempFolder folder;
  const std::string recipe = recipe_of("[3, 16, 16]", "batch = 4", R"({ name = "fc", type = "dense", out = 10 })") +
                             "[parallel]\nworkers = 4\n";
  const Overrides shards{{"data.format", "shards"},
                         {"data.augment", "{ crop = 16, short_side = 512 }"},
                         {"data.test_images", ""},
                         {"data.dir", folder.path()}};
  const LoadNeed documented = load_need(small_settings(recipe, shards), 8390);
  EXPECT_THAT(documented.source, HasSubstr("documented for photographs of 256 pixels"));
  EXPECT_DOUBLE_EQ(documented.cores(), 4);  // four times the pixels
  write_split(folder.path(), "train", {.images = 10, .classes = 10});
  const LoadNeed measured = load_need(small_settings(recipe, shards), 1000);
  EXPECT_THAT(measured.source, HasSubstr("measured on this machine with the photographs in " + folder.path()));
  EXPECT_DOUBLE_EQ(measured.cores(), 1000 / measured.images_per_core_s);
  EXPECT_GT(measured.cores(), 0);
}

}  // namespace
}  // namespace owt::measure_loading_test

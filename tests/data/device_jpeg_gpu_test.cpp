// Photographs that the GPU decodes: nvJPEG of the simulated GPU has the CPU decoder's pixels.
#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "data/device_batches.h"
#include "data/held_out.h"
#include "data/shards.h"
#include "tests/data/batches.h"
#include "tests/simulated_gpu/jpeg.h"
#include "tests/support/made_photos.h"
#include "tests/support/message_of.h"
#include "tests/support/shards.h"

namespace owt::device_jpeg_gpu_test {
namespace {

using simulated_gpu::decoded_jpegs;
using simulated_gpu::WithJpegs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class DeviceJpegs : public testing::Test {
 protected:
  // Short files, which fit into the rows.
  void write(MadeShards made) const {
    made.jpeg.quality = std::min(made.jpeg.quality, 40);
    write_split(folder_.path(), "train", made);
  }
  LoaderSettings loading(int64_t batch = 4) const {
    LoaderSettings made;
    made.dataset = std::make_shared<ShardDataset>(folder_.path(), Split::kTrain, crop_);
    made.augmenter = std::make_shared<Augmenter>(AugmentSettings{.mirror = true}, made.dataset->image());
    made.corrupt = std::make_shared<CorruptRecords>(100);
    made.batch = batch;
    made.seed = 3;
    return made;
  }
  // The first steps, and the number of images that nvJPEG has decoded for them and for the batches sent ahead.
  std::vector<Copy> on_gpu(LoaderSettings settings, int steps, int64_t* decoded = nullptr) const {
    settings.decoder = Decoder::kGpu;
    const Stream stream(Device::kCuda);
    const int64_t before = decoded_jpegs();
    std::vector<Copy> batches;
    {
      const auto source = make_streamed_batches({Precision::kFp32}, std::move(settings));
      batches = run(*source, steps, stream);
    }
    if (decoded) *decoded = decoded_jpegs() - before;
    return batches;
  }

  TempFolder folder_;
  CropSettings crop_{.crop = 32, .short_side = 40};
};

// Windows of the rows' size, smaller and larger ones; eleven images in steps of four rows.
TEST_F(DeviceJpegs, GiveTheBatchesOfTheCpu) {
  write({.images = 11, .images_per_shard = 3});
  for (const bool random_area : {false, true})
    for (const int64_t crop : {32, 33, 70}) {
      crop_ = {.crop = crop, .short_side = crop + 8};
      if (random_area) crop_.area = {0.1, 1.0};
      SCOPED_TRACE(concat("crop ", crop, random_area ? ", random areas" : ""));
      const LoaderSettings made = loading();
      int64_t decoded = 0;
      EXPECT_EQ(on_gpu(made, 7, &decoded), run(made, 7));
      EXPECT_GE(decoded, 7 * 11 / 3);
    }
}

// Files are in colour and in grey.
TEST_F(DeviceJpegs, GiveTheLumaOfTheCpu) {
  for (const bool grey : {false, true})
    for (const int64_t crop : {32, 70}) {
      write({.images = 11, .images_per_shard = 3, .jpeg = {.quality = 40, .grey = grey}});
      crop_ = {.crop = crop, .short_side = crop + 8, .channels = 1};
      const LoaderSettings made = loading();
      int64_t decoded = 0;
      EXPECT_EQ(on_gpu(made, 7, &decoded), run(made, 7)) << "crop " << crop << (grey ? ", grey files" : "");
      EXPECT_GE(decoded, 7 * 11 / 3);
    }
}

// Many taps, and windows of which one side is much longer than the other.
TEST_F(DeviceJpegs, ShrinkAsTheCpuDoes) {
  write({.images = 5, .height = 400, .width = 380, .jpeg = {.quality = 5}});
  crop_ = {.crop = 56, .short_side = 56, .area = {0.05, 1.0}, .aspect = {0.2, 5.0}};
  const LoaderSettings made = loading();
  int64_t decoded = 0;
  EXPECT_EQ(on_gpu(made, 6, &decoded), run(made, 6));
  EXPECT_GE(decoded, 3 * 5);
}

TEST_F(DeviceJpegs, GiveTheSameRowsToAnyNumberOfRanks) {
  write({.images = 11, .images_per_shard = 3});
  AugmentSettings mixed{.mirror = true};
  mixed.mix.cutmix = 1;
  for (const AugmentSettings& augment : {AugmentSettings{.mirror = true}, mixed}) {
    LoaderSettings made = loading(5);
    made.augmenter = std::make_shared<Augmenter>(augment, made.dataset->image());
    const std::vector<Copy> one = on_gpu(made, 4);
    EXPECT_EQ(one, run(made, 4));
    std::vector<std::vector<float>> joined(4);
    for (int rank = 0; rank < 2; ++rank) {
      const std::vector<Copy> part = on_gpu(of_rank(made, 2, rank), 4);
      for (size_t step = 0; step < 4; ++step)
        joined[step].insert(joined[step].end(), part[step].images.begin(), part[step].images.end());
    }
    for (size_t step = 0; step < 4; ++step) EXPECT_EQ(joined[step], one[step].images);
  }
}

// Progressive, arithmetic, with four channels, tiny, and too long for a row; only the first and the last are for a GPU.
TEST_F(DeviceJpegs, LeaveOtherFilesToTheCpu) {
  crop_ = {.crop = 48, .short_side = 48};
  write({.images = 7, .file = [](const Photo& photo, int64_t i) {
           switch (i) {
             case 1:
               return made_jpeg(photo, true);
             case 2:
               return arithmetic_jpeg(photo);
             case 3:
               return made_jpeg(photo.height, photo.width, 3, photo.pixels, {.stored = JCS_RGB, .adobe = true});
             case 4: {
               std::string long_file = jpeg_of(photo, {});
               return long_file.insert(2, std::string("\xff\xfe\x1f\x42", 4) + std::string(8000, 'x'));
             }
             case 5:
               return gray_jpeg(photo.height, photo.width, 77);
             default:
               return jpeg_of(photo, {});
           }
         }});
  const LoaderSettings made = loading(7);
  int64_t decoded = 0;
  EXPECT_EQ(on_gpu(made, 3, &decoded), run(made, 3));
  EXPECT_EQ(decoded % 3, 0);
  EXPECT_GE(decoded, 9);
  EXPECT_LE(decoded, 3 * 6);  // up to three batches were sent ahead
}

TEST_F(DeviceJpegs, LeaveFilesThatNvjpegRefusesToTheCpu) {
  write({.images = 6});
  LoaderSettings made = loading(6);
  made.shuffle = false;
  const auto& shards = dynamic_cast<const ShardDataset&>(*made.dataset);
  const auto refused = static_cast<size_t>(shards.stored(2).bytes);
  int64_t all = 0, some = 0;
  const std::vector<Copy> wanted = run(made, 3);
  EXPECT_EQ(on_gpu(made, 3, &all), wanted);
  const WithJpegs jpegs({.refuses = [=](size_t bytes) { return bytes == refused; }});
  EXPECT_EQ(on_gpu(made, 3, &some), wanted);
  EXPECT_EQ(some % 5, 0);
  EXPECT_EQ(all % 6, 0);
}

TEST_F(DeviceJpegs, AnImageThatNvjpegSkipsEndsTheRun) {
  write({.images = 6});
  LoaderSettings made = loading(6);
  made.shuffle = false;
  const auto& shards = dynamic_cast<const ShardDataset&>(*made.dataset);
  const auto skipped = static_cast<size_t>(shards.stored(2).bytes);
  const WithJpegs jpegs({.skips = [=](size_t bytes) { return bytes == skipped; }});
  EXPECT_THAT(message_of([&] { on_gpu(made, 8); }),
              AllOf(HasSubstr("without pixels: row 2 of step 1 in epoch 1"), HasSubstr("data.decoder = \"cpu\"")));
}

TEST_F(DeviceJpegs, ReplaceDamagedRecordsAsTheCpuDoes) {
  write({.images = 6, .images_per_shard = 4, .classes = 6});
  for (const size_t record : {1, 2}) damage_record(folder_.path(), "train", 0, record);
  LoaderSettings made = loading(6);
  made.shuffle = false;
  const std::vector<Copy> found = on_gpu(made, 2);
  EXPECT_EQ(found, run(made, 2));
  EXPECT_THAT(found[0].labels, ElementsAre(0, 3, 3, 3, 4, 5));
  EXPECT_EQ(made.corrupt->count(), 2);
}

// A part of the training images with other labels.
TEST_F(DeviceJpegs, ReachThroughDataSetsOfDataSets) {
  write({.images = 11, .images_per_shard = 3});
  LoaderSettings made = loading();
  made.dataset = hold_out(made.dataset, 0.2, 1).train;
  int64_t decoded = 0;
  EXPECT_EQ(on_gpu(made, 4, &decoded), run(made, 4));
  EXPECT_GT(decoded, 0);
}

TEST_F(DeviceJpegs, AreDecodedByKernelsWhereThereAreNoEngines) {
  write({});
  const LoaderSettings made = loading();
  const WithJpegs jpegs({.engines = false});
  int64_t decoded = 0;
  EXPECT_EQ(on_gpu(made, 2, &decoded), run(made, 2));
  EXPECT_GT(decoded, 0);
}

TEST_F(DeviceJpegs, AnEvaluationIsDecodedByTheCpu) {
  write({});
  LoaderSettings made = loading();
  made.training = false;
  int64_t decoded = 0;
  EXPECT_EQ(on_gpu(made, 2, &decoded), run(made, 2));
  EXPECT_EQ(decoded, 0);
}

TEST_F(DeviceJpegs, WithoutNvjpegTheCureIsNamedAndAnAutomaticChoiceIsTheCpu) {
  write({});
  const WithJpegs jpegs({.engines = false, .kernels = false});
  LoaderSettings made = loading();
  EXPECT_THAT(message_of([&] { on_gpu(made, 1); }),
              AllOf(HasSubstr("nvJPEG does not work on this GPU"), HasSubstr("data.decoder = \"cpu\"")));
  made.decoder = Decoder::kAuto;
  const Stream stream(Device::kCuda);
  const auto source = make_streamed_batches({Precision::kFp32}, made);
  ASSERT_NE(source->decoder_trial(), nullptr);
  EXPECT_THAT(source->decoder_trial()->why_not(), HasSubstr("nvJPEG does not work"));
  EXPECT_EQ(run(*source, 3, stream), run(made, 3));
}

TEST_F(DeviceJpegs, PhotographsThatAreTooLargeForAllRowsAreAnError) {
  write({.images = 1, .height = 1030, .width = 512});
  EXPECT_THAT(message_of([&] { on_gpu(loading(1), 1); }),
              AllOf(HasSubstr("more than 524288 pixels"), HasSubstr("data.decoder")));
}

TEST_F(DeviceJpegs, ARunOnTheCpuRefusesThem) {
  write({});
  LoaderSettings made = loading();
  made.decoder = Decoder::kGpu;
  EXPECT_THAT(message_of([&] { make_batches(Cpu{}, made, 0); }),
              AllOf(HasSubstr("computes on the CPU"), HasSubstr("data.decoder = \"cpu\"")));
}

// Blocks of the trial, the steps that are under way when it ends, and the chosen decoder.
TEST_F(DeviceJpegs, ATrialDecodesInTurnWithTheSamePixels) {
  write({.images = 6});
  LoaderSettings made = loading(6);
  made.decoder = Decoder::kAuto;
  const Stream stream(Device::kCuda);
  const auto source = make_streamed_batches({Precision::kFp32}, made);
  DecoderTrial& trial = *source->decoder_trial();
  const std::vector<Copy> wanted = run(made, 130);
  std::vector<Copy> found;
  std::vector<int64_t> decoded;
  for (int step = 0; step < 130; ++step) {
    found.push_back(run(*source, 1, stream)[0]);
    decoded.push_back(decoded_jpegs());
    EXPECT_EQ(trial.awaits_choice(), step == DecoderTrial::kSteps) << step;
    if (trial.awaits_choice()) trial.choose(Decoder::kGpu);
  }
  EXPECT_EQ(found, wanted);
  const auto between = [&](size_t from, size_t to) { return decoded[to] - decoded[from]; };
  EXPECT_EQ(between(0, 30), 0);
  EXPECT_EQ(between(30, 70), 6 * 20);
  EXPECT_EQ(between(70, 110), 6 * 20);
  EXPECT_GE(between(110, 129), 6 * 12);
}

}  // namespace
}  // namespace owt::device_jpeg_gpu_test

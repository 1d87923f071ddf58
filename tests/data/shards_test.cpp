#include "data/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "data/load_stages.h"
#include "data/resize.h"
#include "data/shard_statistics.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "src/system/config.h"
#include "tests/data/batches.h"
#include "tests/support/message_of.h"
#include "tests/support/shards.h"

namespace owt::shards_test {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pointwise;

View in_training(int64_t epoch, uint64_t seed = 1) { return {.training = true, .seed = seed, .epoch = epoch}; }

CropSettings crop_of(const std::string& toml) {
  Config config = Config::text(toml);
  return CropSettings::from(config, 224);
}

TEST(CropSettings, LeaveTheShortSideAsLongAsTheCropWhereItIsLonger) {
  EXPECT_EQ(crop_of("").short_side, 256);
  EXPECT_EQ(crop_of("crop = 256").short_side, 256);
  EXPECT_EQ(crop_of("crop = 300").short_side, 300);
  EXPECT_EQ(crop_of("crop = 64\nshort_side = 64").crop, 64);
  EXPECT_THROW(crop_of("crop = 65\nshort_side = 64"), Error);
}

TEST(Windows, TenViewsAreTheCentreAndTheCornersTwice) {
  const CropSettings settings{.crop = 224, .short_side = 256};
  const auto view = [&](int number) { return window_of(settings, {.number = number}, 0, 256, 341); };
  EXPECT_EQ(view(0), (ImageWindow{16, 58, 224, 224}));
  EXPECT_EQ(view(1), (ImageWindow{0, 0, 224, 224}));
  EXPECT_EQ(view(2), (ImageWindow{0, 117, 224, 224}));
  EXPECT_EQ(view(3), (ImageWindow{32, 0, 224, 224}));
  EXPECT_EQ(view(4), (ImageWindow{32, 117, 224, 224}));
  for (int number = 0; number < 5; ++number) EXPECT_EQ(view(number), view(number + 5));
}

TEST(Windows, ImagesOfOtherSizesAreSeenAsIfTheirShortSideWereAsStated) {
  const CropSettings settings{.crop = 224, .short_side = 256};
  EXPECT_EQ(window_of(settings, {}, 0, 1024, 512), (ImageWindow{288, 32, 448, 448}));
  EXPECT_EQ(window_of(settings, {}, 0, 64, 64), (ImageWindow{4, 4, 56, 56}));
  EXPECT_EQ(window_of(settings, {}, 0, 1, 300), (ImageWindow{0, 149, 1, 1}));
  EXPECT_EQ(window_of(settings, {}, 0, 3, 3), (ImageWindow{0, 0, 3, 3}));  // 2.6 pixels are rounded
}

TEST(Windows, TrainingShowsEveryPlaceAboutEquallyOften) {
  const CropSettings settings{.crop = 6, .short_side = 8};
  std::map<std::pair<int64_t, int64_t>, int> places;
  for (int64_t index = 0; index < 9000; ++index) {
    const ImageWindow window = window_of(settings, in_training(0), index, 8, 8);
    EXPECT_EQ(window.height, 6);
    EXPECT_EQ(window.width, 6);
    ++places[{window.top, window.left}];
  }
  ASSERT_EQ(places.size(), 9u);
  for (const auto& [place, count] : places) EXPECT_NEAR(count, 1000, 150) << place.first << ", " << place.second;
}

TEST(Windows, DependOnSeedEpochAndSampleAlone) {
  const CropSettings settings{.crop = 32, .short_side = 256};
  const auto at = [&](uint64_t seed, int64_t epoch, int64_t index) {
    return window_of(settings, in_training(epoch, seed), index, 256, 300);
  };
  EXPECT_EQ(at(1, 2, 3), at(1, 2, 3));
  EXPECT_FALSE(at(1, 2, 3) == at(2, 2, 3));
  EXPECT_FALSE(at(1, 2, 3) == at(1, 3, 3));
  EXPECT_FALSE(at(1, 2, 3) == at(1, 2, 4));
}

TEST(Windows, RandomPartsHaveTheSizesAndProportionsAskedFor) {
  const CropSettings settings{.area = {0.08, 1.0}};
  constexpr int64_t kHeight = 300, kWidth = 400, kCount = 20000;
  double area = 0, log_aspect = 0;
  std::set<int64_t> tops;
  for (int64_t index = 0; index < kCount; ++index) {
    const ImageWindow w = window_of(settings, in_training(0), index, kHeight, kWidth);
    ASSERT_TRUE(w.top >= 0 && w.left >= 0 && w.top + w.height <= kHeight && w.left + w.width <= kWidth);
    const double share = static_cast<double>(w.height * w.width) / (kHeight * kWidth);
    const double aspect = static_cast<double>(w.width) / static_cast<double>(w.height);
    EXPECT_GT(share, 0.078);
    EXPECT_GT(aspect, 0.74);
    EXPECT_LT(aspect, 1.35);
    area += share / kCount;
    log_aspect += std::log(aspect) / kCount;
    tops.insert(w.top);
  }
  EXPECT_NEAR(area, 0.43, 0.02);  // less than 0.54: large parts often do not fit and are drawn again
  EXPECT_NEAR(log_aspect, 0, 0.05);
  EXPECT_GT(tops.size(), 150u);
}

TEST(Windows, WhereNoRandomPartFitsTheMiddleIsShown) {
  const CropSettings settings{.area = {0.9, 1.0}};
  EXPECT_EQ(window_of(settings, in_training(0), 0, 100, 1000), (ImageWindow{0, 433, 100, 133}));
  EXPECT_EQ(window_of(settings, in_training(0), 0, 1000, 90), (ImageWindow{440, 0, 120, 90}));
}

class ShardsTest : public testing::Test {
 protected:
  std::string error_of_opening(Split split = Split::kTrain) {
    return message_of([&] { ShardDataset(folder_.path(), split, settings_); });
  }
  std::string error_of_reading(const Dataset& images, int64_t index) {
    std::vector<uint8_t> pixels(static_cast<size_t>(images.image().elements()));
    return message_of<CorruptRecord>([&] { images.read(index, {}, pixels.data()); });
  }
  std::shared_ptr<const ShardDataset> open(Split split = Split::kTrain) {
    return std::make_shared<ShardDataset>(folder_.path(), split, settings_);
  }
  LoaderSettings loading(const std::shared_ptr<const Dataset>& images, int64_t batch = 4) {
    return {.dataset = images,
            .augmenter = std::make_shared<Augmenter>(AugmentSettings{.mirror = true}, images->image()),
            .corrupt = std::make_shared<CorruptRecords>(100),
            .batch = batch,
            .seed = 3};
  }

  TempFolder folder_;
  CropSettings settings_{.crop = 32, .short_side = 40};
};

TEST_F(ShardsTest, GiveTheRecordsInOrder) {
  write_split(folder_.path(), "train", {.images = 6, .images_per_shard = 4, .classes = 3});
  const auto images = open();
  EXPECT_EQ(images->size(), 6);
  EXPECT_EQ(images->image(), Shape({32, 32, 3}));
  EXPECT_EQ(images->classes(), 3);
  EXPECT_THAT(images->class_names(), ElementsAre("n00000000 class 0", "n00000001 class 1", "n00000002 class 2"));
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(images->label(i), i % 3);
    EXPECT_EQ(images->name(i), format("made/{}", i));
  }
}

TEST_F(ShardsTest, CopiesHaveTheSameChecksumAndOtherImagesAnother) {
  write_split(folder_.path(), "train", {.images = 6});
  const uint64_t checksum = open()->checksum();
  EXPECT_EQ(open()->checksum(), checksum);
  write_split(folder_.path(), "train", {.images = 6, .height = 41});
  EXPECT_NE(open()->checksum(), checksum);
}

TEST_F(ShardsTest, ReadWhatTheViewShowsOfTheStoredImage) {
  write_split(folder_.path(), "val", {});
  const auto images = open(Split::kTest);
  ShardDataset::WholeImage whole;
  for (const int64_t index : {0, 5}) {
    images->read_whole(index, whole);
    EXPECT_EQ(whole.height, 40 + index);
    EXPECT_EQ(whole.width, 52 + index);
    const Photo original = made_photo(index, whole.height, whole.width);
    double difference = 0;  // JPEG's
    for (size_t e = 0; e < original.pixels.size(); ++e)
      difference += std::abs(original.pixels[e] - whole.pixels[e]) / static_cast<double>(original.pixels.size());
    EXPECT_LT(difference, 12);
  }
  images->read_whole(0, whole);
  std::vector<uint8_t> pixels(32 * 32 * 3);
  images->read(0, {.number = 4}, pixels.data());
  for (int64_t y = 0; y < 32; ++y)
    for (int64_t e = 0; e < 32 * 3; ++e)
      ASSERT_EQ(pixels[static_cast<size_t>(y * 96 + e)],
                whole.pixels[static_cast<size_t>((y + 8) * 52 * 3 + 20 * 3 + e)]);
}

TEST_F(ShardsTest, PartsOfAnotherSizeAreResized) {
  write_split(folder_.path(), "val", {});
  const auto images = open(Split::kTest);
  ShardDataset::WholeImage whole;
  images->read_whole(5, whole);
  const ImageWindow window = window_of(settings_, {}, 5, whole.height, whole.width);
  ASSERT_EQ(window, (ImageWindow{4, 10, 36, 36}));
  std::vector<uint8_t> part, wanted(32 * 32 * 3), found(32 * 32 * 3);
  for (int64_t y = 4; y < 40; ++y) {
    const auto row = whole.pixels.begin() + (y * whole.width + 10) * 3;
    part.insert(part.end(), row, row + 36 * 3);
  }
  Resizer().run(part.data(), 36, 36, 3, 32, wanted.data());
  images->read(5, {}, found.data());
  EXPECT_EQ(found, wanted);
}

// A grey file has the same value in three channels and in one. The luma of a colour is within rounding and clipping.
TEST_F(ShardsTest, OneChannelIsTheLumaOfEveryView) {
  const auto pixels_of = [&](int channels, int64_t index, const View& view) {
    settings_.channels = channels;
    const auto images = open();
    EXPECT_EQ(images->image(), Shape({32, 32, channels}));
    std::vector<uint8_t> pixels(static_cast<size_t>(images->image().elements()));
    images->read(index, view, pixels.data());
    return pixels;
  };
  for (const bool grey : {true, false}) {
    write_split(folder_.path(), "train", {.jpeg = {.quality = 95, .grey = grey}});
    for (const View& view : {View{}, View{.number = 3}, in_training(0), in_training(1)})
      for (const int64_t index : {0, 3, 5}) {
        const std::vector<uint8_t> colours = pixels_of(3, index, view), luma = pixels_of(1, index, view);
        for (size_t i = 0; i < luma.size(); ++i) {
          const double wanted = 0.299 * colours[3 * i] + 0.587 * colours[3 * i + 1] + 0.114 * colours[3 * i + 2];
          ASSERT_NEAR(luma[i], wanted, grey ? 1e-9 : 2.5);
          ASSERT_TRUE(!grey || colours[3 * i] == colours[3 * i + 2]);
        }
      }
  }
}

TEST_F(ShardsTest, ReadingDecodingAndResizingAreTimedApart) {
  write_split(folder_.path(), "train", {.images = 2});
  const auto images = open();
  std::vector<uint8_t> pixels(static_cast<size_t>(images->image().elements()));
  for (const int64_t index : {0, 1}) {
    const StageClock stages;
    images->read(index, {}, pixels.data());
    const auto of = [&](LoadStage stage) { return stages.seconds()[static_cast<size_t>(stage)]; };
    EXPECT_GT(of(LoadStage::kRead), 0);
    EXPECT_GT(of(LoadStage::kDecode), 0);
    EXPECT_EQ(of(LoadStage::kResize) > 0, index == 1);  // image 0 is as large as the recipe wants it
  }
}

TEST_F(ShardsTest, BatchesDependNeitherOnThreadsNorOnRanks) {
  write_split(folder_.path(), "train", {.images = 11, .images_per_shard = 3});
  for (const double smallest : {0.0, 0.2}) {
    settings_.area = {smallest, smallest > 0 ? 1.0 : 0.0};
    LoaderSettings settings = loading(open());
    const std::vector<Copy> one = run(settings, 6);
    settings.threads = 3;
    EXPECT_EQ(run(settings, 6), one);
    for (size_t step = 0; step < 6; ++step) {
      std::vector<float> joined;
      for (int rank = 0; rank < 2; ++rank) {
        const Copy part = run(of_rank(settings, 2, rank), 6)[step];
        joined.insert(joined.end(), part.images.begin(), part.images.end());
      }
      EXPECT_EQ(joined, one[step].images);
    }
  }
}

TEST_F(ShardsTest, ADamagedRecordIsNamed) {
  write_split(folder_.path(), "train", {.images = 6, .images_per_shard = 4});
  damage_record(folder_.path(), "train", 1, 1);
  const auto images = open();
  EXPECT_EQ(error_of_reading(*images, 4), "");
  EXPECT_THAT(error_of_reading(*images, 5), AllOf(HasSubstr("train/000001.tar: record 1"), HasSubstr("made/5"),
                                                  HasSubstr("checksum"), HasSubstr("prepare")));
}

TEST_F(ShardsTest, ADamagedRecordIsReplacedByTheNextOneOfTheOrder) {
  write_split(folder_.path(), "train", {.images = 6, .images_per_shard = 4, .classes = 6});
  LoaderSettings settings = loading(open(), 6);
  settings.shuffle = false;
  const Copy whole = run(settings, 1)[0];
  for (const size_t record : {1, 2}) damage_record(folder_.path(), "train", 0, record);
  damage_record(folder_.path(), "train", 1, 1);
  settings.dataset = open();
  for (const int threads : {1, 3}) {
    settings.threads = threads;
    settings.corrupt = std::make_shared<CorruptRecords>(3);
    const std::vector<Copy> batches = run(settings, 3);
    for (const Copy& batch : batches) EXPECT_THAT(batch.labels, ElementsAre(0, 3, 3, 3, 4, 0));
    const auto image = [](const Copy& batch, int64_t row) {
      return std::vector<float>(batch.images.begin() + row * 3072, batch.images.begin() + (row + 1) * 3072);
    };
    EXPECT_EQ(image(batches[0], 1), image(whole, 3));
    EXPECT_EQ(image(batches[0], 5), image(whole, 0));
    EXPECT_EQ(settings.corrupt->count(), 3);  // in three epochs
  }
}

TEST_F(ShardsTest, TooManyDamagedRecordsEndTheRun) {
  write_split(folder_.path(), "train", {.images = 6, .images_per_shard = 6});
  for (const size_t record : {1, 4}) damage_record(folder_.path(), "train", 0, record);
  LoaderSettings settings = loading(open(), 6);
  settings.corrupt = std::make_shared<CorruptRecords>(1);
  EXPECT_THAT(message_of([&] { run(settings, 2); }),
              AllOf(HasSubstr("2 damaged record(s)"), HasSubstr("data.max_corrupt"), HasSubstr("000000.tar: record"),
                    HasSubstr("prepare the data set again")));
}

TEST_F(ShardsTest, InEvaluationADamagedRecordIsAnError) {
  write_split(folder_.path(), "val", {});
  damage_record(folder_.path(), "val", 0, 2);
  LoaderSettings settings = loading(open(Split::kTest));
  settings.training = false;
  EXPECT_THROW(run(settings, 2), CorruptRecord);
}

TEST_F(ShardsTest, ARecordOfAnotherSizeThanItsIndexSaysIsDamaged) {
  write_split(folder_.path(), "train", {});
  const std::string path = folder_.file("train/000000.index");
  ShardIndex index = parse_shard_index(read_file(path), path);
  index.records[2].width += 1;
  write_bytes(path, shard_index_bytes(index));
  EXPECT_THAT(error_of_reading(*open(), 2), HasSubstr("its index says 42 x 55"));
}

TEST_F(ShardsTest, WhatIsMissingOrDamagedIsNamed) {
  const std::string train = folder_.file("train");
  const auto fresh = [&] {
    std::filesystem::remove_all(train);
    write_split(folder_.path(), "train", {});
  };
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("classes.txt"), HasSubstr("owt prepare")));
  fresh();
  EXPECT_EQ(error_of_opening(), "");
  EXPECT_THAT(error_of_opening(Split::kTest), AllOf(HasSubstr("val"), HasSubstr("owt prepare")));

  std::filesystem::remove(train + "/dataset.json");
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("train"), HasSubstr("not complete")));
  fresh();
  std::filesystem::resize_file(train + "/000001.tar", 1000);
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("000001.tar"), HasSubstr("1000 bytes")));
  fresh();
  std::filesystem::resize_file(train + "/000001.index", 60);
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("000001.index"), HasSubstr("truncated")));
  fresh();
  std::filesystem::remove(train + "/000001.index");
  EXPECT_THAT(error_of_opening(), HasSubstr("000001.index"));
  fresh();
  std::filesystem::remove(train + "/000000.tar");
  EXPECT_THAT(error_of_opening(), HasSubstr("000000.tar"));
  fresh();
  write_bytes(train + "/dataset.json", R"({"images": 7, "classes": 3, "shards": 2})");
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("7 images"), HasSubstr("6")));
  write_bytes(train + "/dataset.json", R"({"images": 6, "classes": 3})");
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("dataset.json"), HasSubstr("'shards'")));
  write_bytes(train + "/dataset.json", R"({"images": 6, "classes": 3)");
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("dataset.json"), HasSubstr("no JSON object")));
  write_bytes(train + "/dataset.json", R"({"images": 6, "shards": )" + nested(1'000'000) + "}");
  EXPECT_THAT(error_of_opening(), AllOf(HasSubstr("dataset.json"), HasSubstr("nested deeper than 64")));
  fresh();
  write_bytes(folder_.file("classes.txt"), "a\nb\n");
  EXPECT_THAT(error_of_opening(), HasSubstr("classes.txt names 2"));
}

TEST_F(ShardsTest, ARecordThatWasCutOffWhileOpenIsDamaged) {
  write_split(folder_.path(), "train", {.images = 4, .images_per_shard = 4, .height = 200, .width = 200});
  const auto images = open();
  std::filesystem::resize_file(folder_.file("train/000000.tar"), 4096);
  EXPECT_THAT(error_of_reading(*images, 3), HasSubstr("record 3"));
}

// Mapped pages would count as memory of the process, which would grow to the size of the data set.
TEST_F(ShardsTest, RecordsAreReadWithoutMappingTheirFiles) {
  write_split(folder_.path(), "train", {.images = 6, .images_per_shard = 2});
  const auto images = open();
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(error_of_reading(*images, i), "");
  EXPECT_THAT(read_file("/proc/self/maps"), Not(HasSubstr(folder_.path())));
}

class ShardStatisticsTest : public ShardsTest {};

TEST_F(ShardStatisticsTest, AreThoseOfAllPixels) {
  write_split(folder_.path(), "train", {});
  const auto images = open();
  const DatasetStatistics found = compute_statistics(*images, nullptr);

  std::vector<std::array<double, 3>> all;
  ShardDataset::WholeImage whole;
  for (int64_t i = 0; i < images->size(); ++i) {
    images->read_whole(i, whole);
    for (size_t e = 0; e < whole.pixels.size(); e += 3)
      all.push_back({double(whole.pixels[e]), double(whole.pixels[e + 1]), double(whole.pixels[e + 2])});
  }
  std::array<double, 3> mean{};
  for (const auto& pixel : all)
    for (size_t c = 0; c < 3; ++c) mean[c] += pixel[c] / static_cast<double>(all.size());
  std::vector<double> covariance(9);
  for (const auto& pixel : all)
    for (size_t a = 0; a < 3; ++a)
      for (size_t b = 0; b < 3; ++b)
        covariance[a * 3 + b] += (pixel[a] - mean[a]) * (pixel[b] - mean[b]) / static_cast<double>(all.size());
  EXPECT_THAT(found.channel_mean, Pointwise(DoubleNear(1e-9), mean));
  EXPECT_THAT(found.covariance, Pointwise(DoubleNear(1e-7), covariance));
  for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(found.channel_std[c], std::sqrt(covariance[c * 4]), 1e-9);
  // covariance * vector = value * vector
  for (size_t i = 0; i < 3; ++i)
    for (size_t a = 0; a < 3; ++a) {
      double product = 0;
      for (size_t b = 0; b < 3; ++b) product += covariance[a * 3 + b] * found.eigenvectors[i * 3 + b];
      EXPECT_NEAR(product, found.eigenvalues[i] * found.eigenvectors[i * 3 + a], 1e-6);
    }
  EXPECT_GE(found.eigenvalues[0], found.eigenvalues[1]);
  EXPECT_GE(found.eigenvalues[1], found.eigenvalues[2]);
}

TEST_F(ShardStatisticsTest, DoNotDependOnThreads) {
  write_split(folder_.path(), "train", {.images = 150, .images_per_shard = 100, .height = 10, .width = 20});
  const auto images = open();
  const int team = team_size();
  set_team_size(1);
  const DatasetStatistics one = compute_statistics(*images, nullptr);
  set_team_size(3);
  int64_t told = 0;
  const DatasetStatistics three = compute_statistics(*images, [&](int64_t done) { told = done; });
  set_team_size(team);
  EXPECT_EQ(told, 150);
  EXPECT_EQ(one.channel_mean, three.channel_mean);
  EXPECT_EQ(one.covariance, three.covariance);
  EXPECT_EQ(one.eigenvectors, three.eigenvectors);
}

TEST_F(ShardStatisticsTest, ComeBackFromTheFile) {
  write_split(folder_.path(), "train", {});
  const DatasetStatistics written = compute_statistics(*open(), nullptr);
  write_statistics(folder_.path(), written);
  const DatasetStatistics found = read_statistics(folder_.path());
  EXPECT_EQ(found.channel_mean, written.channel_mean);
  EXPECT_EQ(found.channel_std, written.channel_std);
  EXPECT_EQ(found.covariance, written.covariance);
  EXPECT_EQ(found.eigenvalues, written.eigenvalues);
  EXPECT_EQ(found.eigenvectors, written.eigenvectors);
}

// They are exact for grey files, and else equal up to the rounding and clipping of pixels.
TEST_F(ShardStatisticsTest, OfOneChannelAreThoseOfTheLuma) {
  for (const bool grey : {true, false}) {
    write_split(folder_.path(), "train", {.jpeg = {.quality = 95, .grey = grey}});
    settings_ = {.crop = 40, .short_side = 40};
    write_statistics(folder_.path(), compute_statistics(*open(), nullptr));
    const DatasetStatistics found = read_statistics(folder_.path(), 1);
    WindowDecoder decoder;
    double pixels = 0, sum = 0, squares = 0;
    const auto images = open();
    for (int64_t i = 0; i < images->size(); ++i) {
      const std::string tar = read_file(folder_.file(format("train/{:06}.tar", i / 4)));
      const std::string index = folder_.file(format("train/{:06}.index", i / 4));
      const ShardRecord record = parse_shard_index(read_file(index), index).records[static_cast<size_t>(i % 4)];
      const std::string file = tar.substr(record.offset, record.bytes);
      decoder.open(file);
      std::vector<uint8_t> luma(static_cast<size_t>(decoder.height() * decoder.width()));
      decoder.decode({0, 0, decoder.height(), decoder.width()}, 1, luma.data());
      for (const double value : luma) ++pixels, sum += value, squares += value * value;
    }
    const double mean = sum / pixels, std = std::sqrt(squares / pixels - mean * mean), most = grey ? 1e-6 : 0.1;
    ASSERT_EQ(found.channel_mean.size(), 1u);
    EXPECT_NEAR(found.channel_mean[0], mean, most);
    EXPECT_NEAR(found.channel_std[0], std, most);
    EXPECT_NEAR(found.eigenvalues[0], std * std, 2 * std * most);
    EXPECT_THAT(found.eigenvectors, ElementsAre(1.0));
  }
}

TEST_F(ShardStatisticsTest, AMissingOrDamagedFileIsNamedWithTheCure) {
  const auto error = [&] {
    try {
      read_statistics(folder_.path());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(error(), AllOf(HasSubstr("stats.json"), HasSubstr("owt prepare stats " + folder_.path())));
  std::filesystem::create_directories(folder_.file("train"));
  write_bytes(folder_.file("train/stats.json"), R"({"mean": [1, 2]})");
  EXPECT_THAT(error(), AllOf(HasSubstr("stats.json"), HasSubstr("'mean'")));
  write_bytes(folder_.file("train/stats.json"),
              R"({"mean": [1, 2, 3], "std": [1, -2, 3], "covariance": [1, 0, 0, 0, 1, 0, 0, 0, 1],
                  "eigenvalues": [1, 1, 1], "eigenvectors": [1, 0, 0, 0, 1, 0, 0, 0, 1]})");
  EXPECT_THAT(error(), AllOf(HasSubstr("stats.json"), HasSubstr("below 0")));
}

}  // namespace
}  // namespace owt::shards_test

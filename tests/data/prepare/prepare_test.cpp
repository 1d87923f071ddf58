#include "data/prepare/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>

#include "data/photos/photo.h"
#include "data/prepare/split_folder.h"
#include "data/prepare/tar.h"
#include "data/shard_index.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/made_photos.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::prepare_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Content = std::map<std::string, std::string>;

Content content_of(const std::string& dir) {
  Content content;
  for (const auto& entry : fs::directory_iterator(dir))
    content[entry.path().filename().string()] = read_file(entry.path().string());
  return content;
}

bool keep_going(const PrepareState&) { return true; }

class PrepareTest : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    write_bytes(file(name), bytes);
  }
  static Photo plain(int number) {
    return {32, 40, std::vector<uint8_t>(32 * 40 * 3, static_cast<uint8_t>(5 * number))};
  }
  // Three classes of seven images of one gray each; class c, image i: 5 * (7 * c + i).
  PhotoSources three_classes() const {
    for (int i = 0; i < 21; ++i)
      write("in/class" + std::to_string(i / 7) + "/" + std::to_string(i % 7) + ".jpg", jpeg_of(plain(i), {}));
    return folder_sources(file("in"));
  }
  static PrepareSettings small() { return {.short_side = 32, .shard_images = 4, .threads = 2}; }
  Prepared prepare(const PhotoSources& sources, const std::string& split, const PrepareSettings& settings) const {
    return prepare_split(sources, file(split), settings, keep_going);
  }
  std::string error_of(const PhotoSources& sources, const std::string& split, const PrepareSettings& settings) const {
    return message_of([&] { prepare(sources, split, settings); });
  }
  // The records of all shards, one after the other, and their JPEG files.
  std::vector<std::pair<ShardRecord, std::string>> records_of(const std::string& split) const {
    std::vector<std::pair<ShardRecord, std::string>> all;
    for (int64_t shard = 0; fs::exists(file(split + "/" + shard_file_name(shard, ".tar"))); ++shard) {
      const std::string index_path = file(split + "/" + shard_file_name(shard, ".index"));
      const std::string tar = read_file(file(split + "/" + shard_file_name(shard, ".tar")));
      const ShardIndex index = parse_shard_index(read_file(index_path), index_path);
      EXPECT_EQ(index.tar_bytes, tar.size());
      for (const ShardRecord& record : index.records) all.emplace_back(record, tar.substr(record.offset, record.bytes));
    }
    return all;
  }

  TempFolder folder_;
};

TEST_F(PrepareTest, EveryImageIsARecordWithItsLabelAndName) {
  const PhotoSources sources = three_classes();
  const Prepared prepared = prepare(sources, "train", small());
  EXPECT_EQ(prepared.how, Prepared::How::kNow);
  EXPECT_EQ(prepared.images, 21);
  EXPECT_EQ(prepared.shards, 6);
  EXPECT_EQ(prepared.skipped, 0);
  const auto records = records_of("train");
  ASSERT_EQ(records.size(), 21u);
  std::map<std::string, int> seen;
  for (const auto& [record, jpeg] : records) {
    ++seen[record.name];
    EXPECT_EQ(record.checksum, checksum_of(jpeg));
    EXPECT_EQ(record.name.substr(0, 6), "class" + std::to_string(record.label));
    const Photo photo = read_photo(jpeg);
    EXPECT_EQ(photo.height, record.height);
    EXPECT_EQ(photo.width, record.width);
    EXPECT_EQ(photo.width, 40);
    EXPECT_NEAR(photo.pixels[0], 5 * (7 * record.label + (record.name[7] - '0')), 2) << record.name;
  }
  EXPECT_EQ(seen.size(), 21u);
}

// One component with the luma, where files in colour have three.
TEST_F(PrepareTest, InGreyTheLumaIsStored) {
  write("in/a/x.png", written_png(quadrants(32, 40, {0xff0000, 0x00ff00, 0x0000ff, 0x808080})));
  const PhotoSources sources = folder_sources(file("in"));
  PrepareSettings settings = small();
  prepare(sources, "colour", settings);
  settings.grey = true;
  prepare(sources, "grey", settings);
  const std::string grey = records_of("grey")[0].second, colour = records_of("colour")[0].second;
  const auto components = [](const std::string& jpeg) { return static_cast<int>(jpeg.at(jpeg.find("\xFF\xC0") + 9)); };
  EXPECT_EQ(components(grey), 1);
  EXPECT_EQ(components(colour), 3);
  EXPECT_LT(grey.size(), colour.size());
  const Photo photo = read_photo(grey);
  for (const auto& [y, x, luma] : {std::array<int, 3>{4, 4, 76}, {4, 30, 150}, {28, 4, 29}, {28, 30, 128}})
    for (size_t c = 0; c < 3; ++c)
      EXPECT_NEAR(photo.pixels[static_cast<size_t>(y * 40 + x) * 3 + c], luma, 3) << y << ", " << x;
  EXPECT_THAT(error_of(sources, "colour", settings), HasSubstr("colour is prepared already"));
}

TEST_F(PrepareTest, ShardsFollowTheConventionOfWebDataset) {
  prepare(three_classes(), "train", small());
  const std::string path = file("train/000001.tar"), bytes = read_file(path);
  std::vector<std::string> names;
  std::string labels;
  for (const TarMember& member : tar_members(path)) {
    names.push_back(member.name);
    if (member.name.ends_with(".cls")) labels += bytes.substr(member.offset, member.bytes);
  }
  EXPECT_THAT(names, ElementsAre("000004.jpg", "000004.cls", "000005.jpg", "000005.cls", "000006.jpg", "000006.cls",
                                 "000007.jpg", "000007.cls"));
  const auto records = records_of("train");
  std::string wanted;
  for (size_t i = 4; i < 8; ++i) wanted += std::to_string(records[i].first.label);
  EXPECT_EQ(labels, wanted);
}

TEST_F(PrepareTest, TheResultDoesNotDependOnThreads) {
  const PhotoSources sources = three_classes();
  PrepareSettings settings = small();
  for (const int threads : {1, 3, 8}) {
    settings.threads = threads;
    prepare(sources, "train" + std::to_string(threads), settings);
  }
  EXPECT_EQ(content_of(file("train1")), content_of(file("train3")));
  EXPECT_EQ(content_of(file("train1")), content_of(file("train8")));
}

TEST_F(PrepareTest, TheOrderIsShuffledBySeedOrKept) {
  const PhotoSources sources = three_classes();
  PrepareSettings settings = small();
  const auto order = [&](const std::string& split) {
    prepare(sources, split, settings);
    std::string names;
    for (const auto& [record, jpeg] : records_of(split)) names += record.name.substr(5, 3) + " ";
    return names;
  };
  const std::string first = order("seed1");
  settings.seed = 2;
  EXPECT_NE(order("seed2"), first);
  settings.shuffle = false;
  EXPECT_THAT(order("kept"), testing::StartsWith("0/0 0/1 0/2 0/3 0/4 0/5 0/6 1/0 "));
}

TEST_F(PrepareTest, AfterAStopAtAnyMomentTheRestIsMadeAsIfThereHadBeenNone) {
  const PhotoSources sources = three_classes();
  prepare(sources, "whole", small());
  for (int64_t moment = 0; moment < 21; moment += 3) {
    const std::string split = "stopped" + std::to_string(moment);
    const Prepared stopped =
        prepare_split(sources, file(split), small(), [&](const PrepareState& state) { return state.done < moment; });
    EXPECT_EQ(stopped.how, Prepared::How::kStopped);
    EXPECT_FALSE(fs::exists(file(split + "/dataset.json")));
    int64_t before = -1;
    const Prepared rest = prepare_split(sources, file(split), small(), [&](const PrepareState& state) {
      if (before < 0) before = state.done;
      return true;
    });
    EXPECT_EQ(before, moment / 4 * 4) << "what was complete is kept";
    EXPECT_EQ(rest.images, 21);
    EXPECT_EQ(content_of(file(split)), content_of(file("whole")));
  }
}

TEST_F(PrepareTest, DamagedOrHalfWrittenShardsAreMadeAgain) {
  const PhotoSources sources = three_classes();
  prepare(sources, "whole", small());
  const Content whole = content_of(file("whole"));
  const auto broken = [&](const std::string& split, const std::function<void()>& damage) {
    fs::copy(file("whole"), file(split));
    fs::remove(file(split + "/dataset.json"));
    damage();
    prepare(sources, split, small());
    EXPECT_EQ(content_of(file(split)), whole) << split;
  };
  broken("a", [&] { write("a/000001.index", whole.at("000001.index").substr(0, 100)); });
  broken("b", [&] { fs::resize_file(file("b/000002.tar"), 100); });
  broken("c", [&] { fs::remove(file("c/000000.tar")); });
  broken("d", [&] { write("d/000003.tar.tmp", "half"); });
  broken("e", [&] { fs::remove(file("e/000005.index")); });
}

TEST_F(PrepareTest, WhatIsPreparedAlreadyIsLeftAlone) {
  const PhotoSources sources = three_classes();
  prepare(sources, "train", small());
  const auto time = fs::last_write_time(file("train/dataset.json"));
  EXPECT_EQ(prepare(sources, "train", small()).how, Prepared::How::kBefore);
  EXPECT_EQ(fs::last_write_time(file("train/dataset.json")), time);
}

TEST_F(PrepareTest, OtherSettingsOrSourcesAreRefusedUntilTheSplitIsRemoved) {
  PhotoSources sources = three_classes();
  prepare(sources, "train", small());
  const Content before = content_of(file("train"));
  PrepareSettings other = small();
  other.short_side = 24;
  EXPECT_THAT(error_of(sources, "train", other),
              AllOf(HasSubstr("size: 32 there, size: 24 now"), HasSubstr("--force")));
  EXPECT_EQ(content_of(file("train")), before);
  remove_split(file("train"));
  EXPECT_EQ(prepare(sources, "train", other).images, 21);
  EXPECT_EQ(records_of("train")[0].first.height, 24u);
  sources.photos[3].label = 2;
  EXPECT_THAT(error_of(sources, "train", other), HasSubstr("checksum"));
}

TEST_F(PrepareTest, AFolderOfOtherFilesIsRefusedAndKept) {
  const PhotoSources sources = three_classes();
  const auto removal_error = [&](const std::string& split) -> std::string {
    return message_of([&] { remove_split(file(split)); });
  };
  EXPECT_THAT(error_of(sources, "in", small()), AllOf(HasSubstr("class"), HasSubstr("choose another folder")));
  EXPECT_THAT(removal_error("in"), HasSubstr("choose another folder"));
  // A user's own WebDataset has such names too.
  for (const std::string name : {"000000.tar", "stats.json", "dataset.json"}) {
    write("own_" + name + "/" + name, "years of work");
    EXPECT_THAT(error_of(sources, "own_" + name, small()), HasSubstr(name));
    EXPECT_THAT(removal_error("own_" + name), HasSubstr(name));
    EXPECT_EQ(content_of(file("own_" + name)), (Content{{name, "years of work"}}));
  }
  prepare(sources, "train", small());
  write("train/thesis.tex", "years of work");
  const Content content = content_of(file("train"));
  EXPECT_THAT(error_of(sources, "train", small()), HasSubstr("thesis.tex"));
  EXPECT_THAT(removal_error("train"), HasSubstr("thesis.tex"));
  EXPECT_EQ(content_of(file("train")), content);
  EXPECT_EQ(folder_sources(file("in")).photos.size(), 21u);
}

TEST_F(PrepareTest, ASplitThatWasJustBegunContinues) {
  const PhotoSources sources = three_classes();
  write("train/prepare.lock", "");
  write("train/prepare.json.tmp", "half");
  EXPECT_EQ(prepare(sources, "train", small()).images, 21);
}

TEST_F(PrepareTest, DamagedShardsOfACompleteSplitAreMadeAgain) {
  three_classes();
  write("in/class1/bad.jpg", "bad");
  write("in/class2/worse.jpg", "bad");
  const PhotoSources sources = folder_sources(file("in"));
  PrepareSettings settings = small();
  settings.most_skipped = 2;
  prepare(sources, "whole", settings);
  const Content whole = content_of(file("whole"));
  const auto broken = [&](const std::string& split, const std::function<void()>& damage, size_t kept) {
    fs::copy(file("whole"), file(split));
    damage();
    size_t before = 0;
    const Prepared prepared = prepare_split(sources, file(split), settings, [&](const PrepareState& state) {
      if (before == 0) before = static_cast<size_t>(state.done);
      return true;
    });
    EXPECT_EQ(prepared.how, Prepared::How::kNow) << split;
    EXPECT_EQ(before, kept) << split;
    EXPECT_EQ(content_of(file(split)), whole) << split;
  };
  broken(
      "a", [&] { fs::resize_file(file("a/000001.tar"), 100); }, 19);
  broken(
      "b", [&] { write("b/000002.index", whole.at("000002.index").substr(0, 100)); }, 19);
  broken(
      "c", [&] { fs::remove(file("c/000005.tar")); }, 20);
  broken(
      "d", [&] { write("d/dataset.json", "{"); }, 0);  // no photo is worked on
}

// 21 photos of which two of the second shard and one of the last are bad.
TEST_F(PrepareTest, ProgressIsReportedOnceAndContinuesWhereAnEarlierProcessStopped) {
  PrepareSettings settings = small();
  settings.shuffle = false;
  settings.threads = 1;
  settings.most_skipped = 3;
  three_classes();
  for (const char* bad : {"class0/5.jpg", "class0/6.jpg", "class2/6.jpg"}) write(std::string("in/") + bad, "bad");
  const PhotoSources sources = folder_sources(file("in"));
  const auto skipped_of = [](int64_t done) { return int64_t{done > 5} + int64_t{done > 6} + int64_t{done > 20}; };
  for (int64_t moment = 0; moment <= 21; ++moment) {
    const std::string split = "at" + std::to_string(moment);
    int64_t begun = 0, last = 0;
    const auto follow = [&](const PrepareState& state) {
      EXPECT_EQ(state.photos, 21);
      EXPECT_EQ(state.skipped, skipped_of(state.done)) << state.done << " done";
      EXPECT_GE(state.done, begun);
      EXPECT_LE(state.done - last, 1) << "after each photo";
      last = state.done;
    };
    const Prepared stopped = prepare_split(sources, file(split), settings, [&](const PrepareState& state) {
      follow(state);
      return state.done < moment;
    });
    Prepared all = stopped;
    if (moment < 21) {
      EXPECT_EQ(stopped.how, Prepared::How::kStopped);
      begun = last = moment / 4 * 4;  // shards that are complete stay
      all = prepare_split(sources, file(split), settings, [&](const PrepareState& state) {
        follow(state);
        return true;
      });
    }
    EXPECT_EQ(all.how, Prepared::How::kNow);
    EXPECT_EQ(all.images, 18);
    EXPECT_EQ(all.skipped, 3);
    EXPECT_EQ(all.shards, 6);
    int64_t bytes = 0;
    for (int64_t shard = 0; shard < 6; ++shard)
      bytes += static_cast<int64_t>(fs::file_size(file(split + "/" + shard_file_name(shard, ".tar"))));
    EXPECT_EQ(all.bytes, bytes);
    EXPECT_THAT(read_file(file(split + "/dataset.json")),
                AllOf(HasSubstr("\"images\": 18,"), HasSubstr("\"classes\": 3,"), HasSubstr("\"shards\": 6,"),
                      HasSubstr(concat("\"bytes\": ", bytes, ",")), HasSubstr("\"skipped\": 3,"),
                      HasSubstr("\"short side\": 32\n")));
    EXPECT_EQ(text_lines(file(split + "/skipped.txt")).size(), 3u);
  }
  EXPECT_EQ(content_of(file("at6")), content_of(file("at21")));
}

// The limit itself is allowed, whether bad photos are met now or were met before.
TEST_F(PrepareTest, AsManyBadPhotosAsAllowedAreSkippedAndNotOneMore) {
  three_classes();
  for (const char* bad : {"class0/1.jpg", "class2/3.jpg"}) write(std::string("in/") + bad, "bad");
  const PhotoSources sources = folder_sources(file("in"));
  PrepareSettings settings = small();
  settings.most_skipped = 1;
  EXPECT_THAT(error_of(sources, "a", settings), HasSubstr("2 of the first 8 of 21 images cannot be used"));
  EXPECT_THAT(error_of(sources, "a", settings), AllOf(HasSubstr("2 of the first 8 of 21"), HasSubstr("allows (1)")));
  settings.most_skipped = 2;
  EXPECT_EQ(prepare(sources, "a", settings).skipped, 2);
  EXPECT_EQ(prepare(sources, "b", settings).skipped, 2);
  EXPECT_EQ(content_of(file("a")), content_of(file("b")));
}

TEST_F(PrepareTest, TwoProcessesDoNotWorkOnTheSameSplit) {
  const PhotoSources sources = three_classes();
  fs::create_directories(file("train"));
  const FileLock lock(file("train/prepare.lock"));
  EXPECT_THAT(error_of(sources, "train", small()), HasSubstr("another process"));
}

TEST_F(PrepareTest, BadImagesAreSkippedAndListedWithTheirReasons) {
  three_classes();
  write("in/class1/empty.jpg", "");
  write("in/class0/text.JPG", "no picture");
  write("in/class2/cut.png", written_png(plain(1)).substr(0, 60));
  write("in/class2/animation.png", "GIF89a............");
  PrepareSettings settings = small();
  settings.most_skipped = 4;
  const Prepared prepared = prepare(folder_sources(file("in")), "train", settings);
  EXPECT_EQ(prepared.images, 21);
  EXPECT_EQ(prepared.skipped, 4);
  std::vector<std::string> lines = text_lines(file("train/skipped.txt"));
  std::sort(lines.begin(), lines.end());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "class0/text.JPG\tno image: neither JPEG, PNG, BMP, WebP nor TIFF");
  EXPECT_EQ(lines[1], "class1/empty.jpg\tempty file");
  EXPECT_THAT(lines[2], HasSubstr("class2/animation.png\ta GIF file"));
  EXPECT_EQ(lines[3], "class2/cut.png\ttruncated PNG");
  EXPECT_EQ(records_of("train").size(), 21u);
}

TEST_F(PrepareTest, DirtyButWholeImagesAreUsed) {
  const Photo photo = quadrants(68, 121, kFourColours);
  const std::string samples = samples_of(photo), solid = with_fourth(samples, '\xff');
  const std::map<std::string, std::string> files{
      {"gray.jpg", gray_jpeg(68, 121, 50)},
      {"cmyk.JPEG", cmyk_jpeg(photo, JCS_CMYK, true)},
      {"ycck.JPEG", cmyk_jpeg(photo, JCS_YCCK, true)},
      {"turned.jpeg", with_exif(made_jpeg(photo), exif(6, true))},
      {"png.JPEG", written_png(photo)},
      {"deep.png", written_png(68, 121, deepened(samples), {.depth = 16})},
      {"alpha.png", written_png(68, 121, solid, {.colour = PNG_COLOR_TYPE_RGBA})},
      {"animation.webp", animated_webp(68, 121, photo, 0, 0)},
      {"x.bmp", made_bmp(photo)},
      {"x.TIF", written_tiff(photo)}};
  for (const auto& [name, bytes] : files) write("in/a/nested folder/" + name, bytes);
  write("in/a/readme.txt", "not an image by its name");
  write("in/a/.hidden.jpg", "");
  const PhotoSources sources = folder_sources(file("in"));
  EXPECT_EQ(sources.passed_over, 1);
  PrepareSettings settings = small();
  settings.short_side = 256;
  EXPECT_EQ(prepare(sources, "train", settings).images, static_cast<int64_t>(files.size()));
  for (const auto& [record, jpeg] : records_of("train")) {
    const bool turned = record.name.ends_with("turned.jpeg");
    EXPECT_EQ(turned ? record.width : record.height, 256u) << record.name;
    EXPECT_EQ(turned ? record.height : record.width, 456u) << record.name;
  }
}

TEST_F(PrepareTest, TooManyBadImagesEndWithAnErrorAndAHigherLimitContinues) {
  three_classes();
  for (int i = 0; i < 3; ++i) write("in/class0/bad" + std::to_string(i) + ".jpg", "bad");
  const PhotoSources sources = folder_sources(file("in"));
  PrepareSettings settings = small();
  settings.shuffle = false;  // the bad ones are the 8th to 10th
  settings.most_skipped = 1;
  EXPECT_THAT(error_of(sources, "train", settings),
              AllOf(HasSubstr("3 of the first 12 of 24 images"), HasSubstr("--max-skipped allows (1)"),
                    HasSubstr("class0/bad0.jpg no image"), HasSubstr("train/skipped.txt")));
  EXPECT_EQ(text_lines(file("train/skipped.txt")).size(), 3u);
  EXPECT_NE(error_of(sources, "train", settings), "") << "again";
  const auto time = fs::last_write_time(file("train/000000.tar"));
  settings.most_skipped = 3;
  EXPECT_EQ(prepare(sources, "train", settings).skipped, 3);
  EXPECT_EQ(fs::last_write_time(file("train/000000.tar")), time);
  prepare(sources, "at_once", settings);
  EXPECT_EQ(content_of(file("train")), content_of(file("at_once")));
}

TEST_F(PrepareTest, NotOneGoodImageIsAnError) {
  write("in/a/bad.jpg", "bad");
  PrepareSettings settings = small();
  settings.most_skipped = 10;
  EXPECT_THAT(error_of(folder_sources(file("in")), "train", settings), HasSubstr("not one"));
  EXPECT_FALSE(fs::exists(file("train/dataset.json")));
}

TEST_F(PrepareTest, AFullDiskIsOneErrorAndTheRestIsMadeLater) {
  const PhotoSources sources = three_classes();
  PrepareSettings settings = small();
  prepare(sources, "whole", settings);
  {
    const SmallDisk disk(fs::file_size(file("whole/000000.tar")) - 1);
    EXPECT_THAT(error_of(sources, "train", settings), AllOf(HasSubstr("000000.tar"), HasSubstr("free some space")));
  }
  EXPECT_FALSE(fs::exists(file("train/dataset.json")));
  prepare(sources, "train", settings);
  EXPECT_EQ(content_of(file("train")), content_of(file("whole")));
}

TEST_F(PrepareTest, AListNamesPathsWithBlanksAndLabels) {
  write("pictures/my cat.jpg", jpeg_of(plain(4), {}));
  write("pictures/dog.jpg", jpeg_of(plain(9), {}));
  write("pictures/list.txt", "my cat.jpg 1\r\n\ndog.jpg\t0\nmissing.jpg 3\n");
  const PhotoSources sources = list_sources(file("pictures/list.txt"), "", {});
  EXPECT_THAT(sources.classes, ElementsAre("0", "1", "2", "3"));
  PrepareSettings settings = small();
  settings.shuffle = false;
  settings.most_skipped = 1;
  EXPECT_EQ(prepare(sources, "train", settings).images, 2);
  const auto records = records_of("train");
  EXPECT_EQ(records[0].first.name, "my cat.jpg");
  EXPECT_EQ(records[0].first.label, 1);
  EXPECT_EQ(records[1].first.label, 0);
  EXPECT_THAT(read_file(file("train/skipped.txt")), HasSubstr("missing.jpg\tcannot be read: No such file"));
  write("elsewhere.txt", "dog.jpg 2\n");
  EXPECT_EQ(list_sources(file("elsewhere.txt"), file("pictures"), {"a", "b", "c"}).classes.size(), 3u);
}

TEST_F(PrepareTest, LinksAreFollowedAndOnesThatLeadNowhereAreSkippedAndListed) {
  write("elsewhere/b.jpg", jpeg_of(plain(2), {}));
  write("in/cat/a.jpg", jpeg_of(plain(1), {}));
  fs::create_directory_symlink(file("elsewhere"), file("in/cat/more"));
  fs::create_directory_symlink(file("in"), file("in/cat/around"));  // round in circles, by way of cat
  fs::create_directory_symlink(file("elsewhere"), file("in/dog"));
  fs::create_symlink(file("nowhere.jpg"), file("in/cat/gone.jpg"));
  fs::create_symlink(file("nowhere.txt"), file("in/cat/notes.txt"));
  const PhotoSources sources = folder_sources(file("in"));
  std::vector<std::string> names;
  for (const PhotoSource& photo : sources.photos) names.push_back(photo.name);
  EXPECT_THAT(names, ElementsAre("cat/a.jpg", "cat/around/dog/b.jpg", "cat/gone.jpg", "cat/more/b.jpg", "dog/b.jpg"));
  EXPECT_THAT(sources.classes, ElementsAre("cat", "dog"));
  PrepareSettings settings = small();
  settings.most_skipped = 1;
  EXPECT_EQ(prepare(sources, "train", settings).images, 4);
  EXPECT_THAT(read_file(file("train/skipped.txt")), HasSubstr("cat/gone.jpg\tcannot be read: No such file"));
}

// What has no ending may have been a folder of images, or of a class.
TEST_F(PrepareTest, LinksThatLedToFoldersAreSkippedOrNamed) {
  write("in/cat/a.jpg", jpeg_of(plain(1), {}));
  fs::create_symlink(file("nowhere"), file("in/cat/folder"));
  fs::create_symlink(file("nowhere"), file("in/horse"));
  const PhotoSources sources = folder_sources(file("in"));
  EXPECT_THAT(sources.classes, ElementsAre("cat"));
  EXPECT_THAT(sources.notes, ElementsAre(HasSubstr("cannot be reached: horse")));
  EXPECT_THAT(message_of([&] { prepare(sources, "none", small()); }), HasSubstr("max-skipped"));
  PrepareSettings settings = small();
  settings.most_skipped = 1;
  EXPECT_EQ(prepare(sources, "train", settings).images, 1);
  EXPECT_THAT(read_file(file("train/skipped.txt")), HasSubstr("cat/folder\tcannot be read: No such file"));
}

}  // namespace
}  // namespace owt::prepare_test

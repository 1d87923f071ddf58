#include "data/prepare/index_tars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/shards.h"
#include "tests/support/made_photos.h"
#include "tests/support/message_of.h"
#include "tests/support/shards.h"

namespace owt::index_tars_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Members = std::vector<std::pair<std::string, std::string>>;

class IndexTars : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  void pack(const std::string& name, const Members& members) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    TarWriter tar(file(name));
    for (const auto& [member, bytes] : members) tar.add(member, bytes);
    tar.close();
  }
  static std::string jpeg(int64_t number) { return jpeg_of(made_photo(number, 30, 40), {}); }

  std::vector<IndexedSplit> index(TarIndexing settings = {}) const {
    if (!settings.most_skipped) settings.most_skipped = [](int64_t) { return 0; };
    return index_tars(folder_.path(), settings, [](const PrepareState&) { return true; });
  }
  std::string error(const TarIndexing& settings = {}) const {
    return message_of([&] { index(settings); });
  }
  // "name label" of each image.
  std::vector<std::string> images(Split split = Split::kTrain) const {
    const ShardDataset data(folder_.path(), split, {.crop = 20, .short_side = 30});
    std::vector<std::string> all;
    std::vector<uint8_t> pixels(static_cast<size_t>(data.image().elements()));
    for (int64_t i = 0; i < data.size(); ++i) {
      data.read(i, {}, pixels.data());
      all.push_back(concat(data.name(i), ' ', data.label(i)));
    }
    return all;
  }
  std::string classes() const { return read_file(file("classes.txt")); }

  TempFolder folder_;
};

TEST_F(IndexTars, ImagesAreReadWhereTheyLieInTheOrderOfTheFiles) {
  pack("train/some-000001.tar", {{"b.cls", "0"}, {"b.jpg", jpeg(1)}});
  pack("train/some-000000.tar", {{"x/a.1.JPG", "not read"}, {"c.jpeg", jpeg(2)}, {"c.cls", "2\n"}, {"c.json", "{}"}});
  pack("val/1.tar", {{"v.jpg", made_jpeg(made_photo(3, 30, 40), true)}, {"v.cls", "1"}});
  const std::string before = read_file(file("train/some-000000.tar"));
  const std::vector<IndexedSplit> splits = index();
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].images, 2);
  EXPECT_EQ(splits[0].shards, 2);
  EXPECT_EQ(splits[0].classes, 3);
  EXPECT_THAT(images(), ElementsAre("c.jpeg 2", "b.jpg 0"));
  EXPECT_THAT(images(Split::kTest), ElementsAre("v.jpg 1"));
  EXPECT_EQ(classes(), "0\n1\n2\n");
  EXPECT_EQ(read_file(file("train/some-000000.tar")), before);
}

TEST_F(IndexTars, ImagesThatExifTurnsAreCounted) {
  pack("train/0.tar", {{"a.jpg", jpeg(1)},
                       {"a.cls", "0"},
                       {"b.jpg", with_exif(jpeg(2), exif(6, true))},
                       {"b.cls", "0"},
                       {"c.jpg", with_exif(jpeg(3), exif(1, false))},
                       {"c.cls", "0"}});
  EXPECT_EQ(index().at(0).turned, 1);
  EXPECT_THAT(images(), ElementsAre("a.jpg 0", "b.jpg 0", "c.jpg 0"));
}

TEST_F(IndexTars, LabelsMayBeNamesAndStandInTextOrJson) {
  pack("train/0.tar",
       {{"a.jpg", jpeg(1)}, {"a.txt", " sea lion\n"}, {"b.jpg", jpeg(2)}, {"b.json", R"({"id": 7, "label": "cat"})"}});
  pack("train/1.tar", {{"a.jpg", jpeg(3)}, {"a.json", R"("dog")"}});
  index();
  EXPECT_EQ(classes(), "cat\ndog\nsea lion\n");
  EXPECT_THAT(images(), ElementsAre("a.jpg 2", "b.jpg 0", "a.jpg 1"));
}

TEST_F(IndexTars, ClassesThatAreGivenOrThereSayWhatLabelsMean) {
  pack("train/0.tar", {{"a.jpg", jpeg(1)}, {"a.cls", "1"}, {"b.jpg", jpeg(2)}, {"b.txt", "cat"}});
  EXPECT_THAT(error(), AllOf(HasSubstr("by number, as 1"), HasSubstr("by name, as cat"), HasSubstr("--classes")));
  index({.classes = {"cat", "dog\tall dogs"}});
  EXPECT_EQ(classes(), "cat\ndog\tall dogs\n");
  EXPECT_THAT(images(), ElementsAre("a.jpg 1", "b.jpg 0"));
  index();
  EXPECT_THAT(images(), ElementsAre("a.jpg 1", "b.jpg 0"));
  EXPECT_THAT(error({.classes = {"cat"}}), HasSubstr("a.jpg has label 1, but there are 1 classes"));
  EXPECT_THAT(error({.classes = {"dog", "horse"}}), HasSubstr("b.jpg is of class 'cat'"));
}

TEST_F(IndexTars, TarFilesInOneFolderBecomeSplitsByLinks) {
  pack("set-train-0.tar", {{"a.jpg", jpeg(1)}, {"a.cls", "0"}});
  pack("set-val-0.tar", {{"b.jpg", jpeg(2)}, {"b.cls", "0"}});
  EXPECT_THAT(message_of([&] { images(); }), HasSubstr("owt prepare index " + folder_.path()));
  index();
  EXPECT_THAT(images(), ElementsAre("a.jpg 0"));
  EXPECT_THAT(images(Split::kTest), ElementsAre("b.jpg 0"));
  EXPECT_TRUE(fs::is_symlink(file("train/set-train-0.tar")));
}

TEST_F(IndexTars, WhatCannotBeUsedIsListedUpToALimit) {
  pack("train/0.tar", {{"a.jpg", jpeg(1)},
                       {"a.cls", "0"},
                       {"b.png", "no JPEG"},
                       {"b.cls", "0"},
                       {"c.jpg", jpeg(2).substr(0, 500)},
                       {"c.cls", "0"},
                       {"d.jpg", jpeg(3)},
                       {"e.cls", "0"}});
  EXPECT_THAT(error(), AllOf(HasSubstr("3 of 4 images"), HasSubstr("b a png file")));
  EXPECT_FALSE(fs::exists(file("train/dataset.json")));
  index({.most_skipped = [](int64_t) { return 3; }});
  EXPECT_THAT(images(), ElementsAre("a.jpg 0"));
  EXPECT_THAT(split_lines(read_file(file("train/skipped.txt"))),
              ElementsAre(HasSubstr("0.tar: b\ta png"), HasSubstr("0.tar: d\tno label"), HasSubstr("0.tar: c.jpg\t")));
}

TEST_F(IndexTars, RepeatedKeysCompressedFilesAndOwnShardsAreRefused) {
  EXPECT_THAT(error(), HasSubstr("no tar files"));
  pack("train/0.tar", {{"a.jpg", jpeg(1)}, {"a.cls", "0"}, {"b.txt", "x"}, {"a.jpeg", jpeg(1)}});
  EXPECT_THAT(error(), HasSubstr("the sample a is there twice"));
  pack("train/0.tar", {{"a.jpg", jpeg(1)}, {"a.jpg", jpeg(2)}});
  EXPECT_THAT(error(), HasSubstr("a.jpg is there twice"));
  write_bytes(file("train/0.tar"), "\x1f\x8b\x08");
  EXPECT_THAT(error(), HasSubstr("uncompressed"));
  write_bytes(file("train/prepare.json"), "{}");
  EXPECT_THAT(error(), HasSubstr("made by owt prepare"));
}

TEST_F(IndexTars, AStopWritesNothing) {
  pack("train/0.tar", {{"a.jpg", jpeg(1)}, {"a.cls", "0"}});
  EXPECT_THAT(index_tars(folder_.path(), {.most_skipped = [](int64_t) { return 0; }},
                         [](const PrepareState&) { return false; }),
              IsEmpty());
  EXPECT_FALSE(fs::exists(file("classes.txt")));
}

}  // namespace
}  // namespace owt::index_tars_test

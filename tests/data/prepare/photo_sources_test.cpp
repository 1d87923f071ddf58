#include "data/prepare/photo_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/prepare/class_labels.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::photo_sources_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;

// Photos of a class each.
PhotoSources of_classes(const std::vector<std::string>& keys) {
  PhotoSources sources{.classes = keys};
  for (size_t i = 0; i < keys.size(); ++i)
    sources.photos.push_back({.name = keys[i] + "/a.jpg", .label = static_cast<int32_t>(i)});
  return sources;
}

std::vector<int32_t> labels_of(const PhotoSources& sources) {
  std::vector<int32_t> labels;
  for (const PhotoSource& photo : sources.photos) labels.push_back(photo.label);
  return labels;
}

TEST(ClassesTest, TheSecondSplitHasTheClassesOfTheFirst) {
  std::vector<std::string> classes;
  PhotoSources train = of_classes({"class0", "class1", "class2"});
  agree_on_classes(train, {"class0\tcat", "class1\tdog, hound", "class2"}, classes, "classes.txt");
  EXPECT_THAT(classes, ElementsAre("class0\tcat", "class1\tdog, hound", "class2"));
  PhotoSources val = of_classes({"class2", "class1"});
  agree_on_classes(val, val.classes, classes, "classes.txt");
  EXPECT_THAT(labels_of(val), ElementsAre(2, 1));
  EXPECT_EQ(val.classes, classes);
  PhotoSources more = of_classes({"class3"});
  EXPECT_THAT(message_of([&] { agree_on_classes(more, more.classes, classes, "out/classes.txt"); }),
              AllOf(HasSubstr("'class3'"), HasSubstr("out/classes.txt")));
}

TEST(ClassesTest, KeysMayHoldBlanksAndAreTakenWhole) {
  std::vector<std::string> classes;
  PhotoSources train = of_classes({"sea horse", "sea lion"});
  agree_on_classes(train, train.classes, classes, "classes.txt");
  for (const std::string key : {"sea", "sea horse ", "horse"}) {
    PhotoSources val = of_classes({key});
    EXPECT_THAT(message_of([&] { agree_on_classes(val, val.classes, classes, "classes.txt"); }),
                HasSubstr("'" + key + "'"));
  }
  PhotoSources val = of_classes({"sea lion"});
  agree_on_classes(val, val.classes, classes, "classes.txt");
  EXPECT_THAT(labels_of(val), ElementsAre(1));
}

TEST(ClassesTest, AKeyOfSeveralClassesIsRefused) {
  std::vector<std::string> classes{"crane", "maillot", "crane"};
  PhotoSources same{.classes = classes, .photos = {{.name = "a.jpg", .label = 2}}};
  agree_on_classes(same, classes, classes, "classes.txt");
  EXPECT_EQ(same.photos[0].label, 2) << "numbers are not changed";
  PhotoSources val = of_classes({"crane"});
  EXPECT_THAT(message_of([&] { agree_on_classes(val, val.classes, classes, "classes.txt"); }),
              HasSubstr("several classes are called 'crane'"));
}

TEST(ClassesTest, WordsAreGivenToTheLongestKeyThatALineStartsWith) {
  EXPECT_THAT(with_words({"sea", "sea horse", "n01", "n02"},
                         {"sea horse a fish", "sea water", "n01  tench, Tinca tinca", "n03 fox", "n02"}),
              ElementsAre("sea\twater", "sea horse\ta fish", "n01\ttench, Tinca tinca", "n02"));
  EXPECT_THAT(message_of([] { with_words({"a"}, {"a cat", "a dog"}); }), HasSubstr("'a'"));
}

TEST(SourcesTest, WrongLinesOfAListAreNamed) {
  const TempFolder folder;
  const auto error = [&](const std::string& text, const std::vector<std::string>& classes = {}) {
    write_bytes(folder.file("list.txt"), text);
    return message_of([&] { list_sources(folder.file("list.txt"), "", classes); });
  };
  EXPECT_THAT(error("a.jpg 0\nb.jpg\n"), HasSubstr("list.txt:2: "));
  EXPECT_THAT(error("a.jpg cat\n"), HasSubstr("list.txt:1: "));
  EXPECT_THAT(error("a.jpg -1\n"), HasSubstr("list.txt:1: "));
  EXPECT_THAT(error("a.jpg 1.5\n"), HasSubstr("list.txt:1: "));
  EXPECT_THAT(error("a.jpg 99999999999\n"), HasSubstr("list.txt:1: "));
  EXPECT_THAT(error("a.jpg 2\n", {"x", "y"}), AllOf(HasSubstr("label 2"), HasSubstr("2 classes")));
  EXPECT_THAT(error("\n"), HasSubstr("no images"));
}

TEST(SourcesTest, AFolderWithoutClassesOrImagesIsAnError) {
  const TempFolder folder;
  const auto error = [&](const std::string& dir) { return message_of([&] { folder_sources(folder.file(dir)); }); };
  EXPECT_THAT(error("nowhere"), HasSubstr("no folder"));
  fs::create_directories(folder.file("flat"));
  write_bytes(folder.file("flat/a.jpg"), "");
  EXPECT_THAT(error("flat"), HasSubstr("per class"));
  fs::create_directories(folder.file("empty/class"));
  write_bytes(folder.file("empty/class/readme"), "");
  EXPECT_THAT(error("empty"), HasSubstr("no images"));
}

class FolderTest : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  void write(const std::string& name) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    write_bytes(file(name), "");
  }
  void link(const std::string& to, const std::string& name) const { fs::create_symlink(to, file(name)); }
  std::string error(const std::string& out = "") const {
    return message_of([&] { folder_sources(file("in"), out.empty() ? out : file(out)); });
  }
  static std::vector<std::string> names_in(const PhotoSources& sources) {
    std::vector<std::string> names;
    for (const PhotoSource& photo : sources.photos) names.push_back(photo.name);
    return names;
  }

  TempFolder folder_;
};

TEST_F(FolderTest, AFolderWithoutImagesIsNoClassAndIsNamed) {
  for (const std::string name : {"cat/1.jpg", "annotations/a.txt", "dog/far/below/2.jpg", "run/checkpoints/latest"})
    write("in/" + name);
  const PhotoSources sources = folder_sources(file("in"));
  EXPECT_THAT(sources.classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(labels_of(sources), ElementsAre(0, 1));
  EXPECT_THAT(sources.notes, ElementsAre(HasSubstr("no class of annotations, run")));
}

TEST_F(FolderTest, ImagesBesideTheClassesAreCountedAndNamed) {
  for (const std::string name : {"cat/1.jpg", "a.jpg", "b.PNG", "readme.txt"}) write("in/" + name);
  EXPECT_THAT(folder_sources(file("in")).notes, ElementsAre(AllOf(HasSubstr("2 images"), HasSubstr("a.jpg, b.PNG"))));
}

TEST_F(FolderTest, TheDataSetIsNoPartOfItsImages) {
  for (const std::string name : {"cat/1.jpg", "out/2.jpg", "cat/more/3.jpg"}) write("in/" + name);
  EXPECT_THAT(folder_sources(file("in"), file("in/out")).classes, ElementsAre("cat"));
  EXPECT_THAT(folder_sources(file("in"), file("in/out")).notes, testing::IsEmpty());
  EXPECT_THAT(names_in(folder_sources(file("in"), file("in/cat/more"))), ElementsAre("cat/1.jpg", "out/2.jpg"));
  link("../in/out", "elsewhere");
  EXPECT_THAT(folder_sources(file("in"), file("in/../in/out")).classes, ElementsAre("cat"));
  EXPECT_THAT(error("in"), HasSubstr("choose another"));
  EXPECT_THAT(folder_sources(file("in"), file("new")).classes, ElementsAre("cat", "out"));
}

TEST_F(FolderTest, SplitsAreNoClasses) {
  write("in/train/cat/1.jpg");
  EXPECT_THAT(error(), AllOf(HasSubstr("splits"), HasSubstr("owt prepare folder " + file("in/train") + " OUT")));
  write("in/Test/cat/1.jpg");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("prepare folder " + file("in/train")), HasSubstr(file("in/Test") + " OUT --split")));
  write("in/val/cat/1.jpg");
  write("in/docs/readme.txt");
  EXPECT_THAT(error(), AllOf(HasSubstr("splits"), HasSubstr("owt prepare imagenet " + file("in") + " OUT")));
  write("in/more/1.jpg");
  EXPECT_THAT(error(), HasSubstr("splits"));
}

TEST_F(FolderTest, AClassMayBeCalledTrain) {
  for (const std::string name : {"bus/1.jpg", "train/2.jpg", "tram/3.jpg"}) write("in/" + name);
  EXPECT_THAT(folder_sources(file("in")).classes, ElementsAre("bus", "train", "tram"));
}

TEST_F(FolderTest, WhatCannotBeReachedIsAnUnreadablePhotoOrIsSkipped) {
  write("in/cat/1.jpg");
  const std::string too_long(300, 'x');
  for (const std::string place : {"in/", "in/cat/"}) {
    link("loop", place + "loop");
    link("loop.jpg", place + "loop.jpg");
    link(too_long + ".jpg", place + "long.jpg");
    link("loop.txt", place + "loop.txt");
  }
  const PhotoSources sources = folder_sources(file("in"));
  EXPECT_THAT(names_in(sources), ElementsAre("cat/1.jpg", "cat/long.jpg", "cat/loop.jpg"));
  EXPECT_EQ(sources.passed_over, 2);
  EXPECT_THAT(sources.notes, ElementsAre(HasSubstr("2 images"), HasSubstr("cannot be reached: loop, loop.txt")));
  const PhotoFiles files(sources);
  EXPECT_THAT(message_of([&] { files.read(sources.photos[2]); }), HasSubstr("Too many levels"));
}

TEST_F(FolderTest, ClassesOfAListThatHaveNoImageAreNamed) {
  write_bytes(file("list.txt"), "a.jpg 1\nb.jpg 2\n");
  EXPECT_THAT(list_sources(file("list.txt"), "", {}).notes,
              ElementsAre(AllOf(HasSubstr("no image of class 0"), HasSubstr("count from 0"))));
  EXPECT_THAT(list_sources(file("list.txt"), "", {"cat", "dog\tall dogs", "cow", "yak"}).notes,
              ElementsAre(HasSubstr("no image of the classes cat, yak")));
  write_bytes(file("list.txt"), "a.jpg 1\nb.jpg 0\n");
  EXPECT_THAT(list_sources(file("list.txt"), "", {}).notes, testing::IsEmpty());
}

}  // namespace
}  // namespace owt::photo_sources_test

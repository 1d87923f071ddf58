// Lists of photos; tests/tools/prepare_test.cpp tests whole preparations.
#include "data/prepare/imagenet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/prepare/ilsvrc_synsets.h"
#include "data/prepare/tar.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::imagenet_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

using Content = std::vector<std::pair<std::string, std::string>>;  // names and bytes, in this order

class ImagenetTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(folder_.file(name)).parent_path());
    write_bytes(folder_.file(name), bytes);
  }
  std::string pack(const std::string& name, const Content& content) const {
    TarWriter tar(folder_.file(name));
    for (const auto& [member, bytes] : content) tar.add(member, bytes);
    tar.close();
    return read_file(folder_.file(name));
  }
  // Writes a devkit whose ground truth has these ids.
  void write_devkit(const std::string& truth) const {
    pack("ILSVRC2012_devkit_t12.tar.gz", {{"kit/data/ILSVRC2012_validation_ground_truth.txt", truth}});
  }
  std::optional<PhotoSources> val(const std::string& labels, const std::vector<std::string>& classes = {}) const {
    return imagenet_val_sources(folder_.path(), labels.empty() ? "" : folder_.file(labels), classes);
  }
  std::string error_of_list(const std::string& lines, const std::vector<std::string>& classes = {"n01", "n02"}) const {
    write("val/a.JPEG", "a");
    write("labels.txt", lines);
    return message_of([&] { val("labels.txt", classes); });
  }

  TempFolder folder_;
};

// "name label content" of each.
std::vector<std::string> photos_of(const PhotoSources& sources) {
  const PhotoFiles files(sources);
  std::vector<std::string> all;
  for (const PhotoSource& photo : sources.photos)
    all.push_back(concat(photo.name, ' ', photo.label, ' ', files.read(photo)));
  return all;
}

TEST_F(ImagenetTest, ClassesOfTheTrainingArchiveAreSortedWhateverTheOrderOfItsTars) {
  const std::string n02 = pack("n02.tar", {{"n02_9.JPEG", "nine"}, {"n02_1.JPEG", "one"}}),
                    n01 = pack("n01.tar", {{"n01_5.JPEG", "five"}});
  pack("ILSVRC2012_img_train.tar", {{"n02.tar", n02}, {"README", "no synset"}, {"n01.tar", n01}});
  const PhotoSources sources = *imagenet_train_sources(folder_.path());
  EXPECT_THAT(sources.classes, ElementsAre("n01", "n02"));
  EXPECT_THAT(photos_of(sources),
              ElementsAre("n01/n01_5.JPEG 0 five", "n02/n02_9.JPEG 1 nine", "n02/n02_1.JPEG 1 one"));
}

TEST_F(ImagenetTest, ASynsetThatIsThereTwiceIsRefused) {
  const std::string tar = pack("n01.tar", {{"n01_5.JPEG", "five"}});
  pack("ILSVRC2012_img_train.tar", {{"n01.tar", tar}, {"n02.tar", tar}, {"again/n01.tar", tar}});
  EXPECT_THAT(message_of([&] { imagenet_train_sources(folder_.path()); }),
              AllOf(HasSubstr("class n01 twice"), HasSubstr("again/n01.tar")));
}

TEST_F(ImagenetTest, ATarFileWithoutImagesIsNoClassAndIsNamed) {
  const std::string n01 = pack("n01.tar", {{"readme.txt", "none"}, {"._n01_1.JPEG", "of another system"}}),
                    n02 = pack("n02.tar", {{"n02_1.JPEG", "one"}});
  pack("ILSVRC2012_img_train.tar",
       {{"n01.tar", n01}, {"n02.tar", n02}, {"n03.tar", pack("n03.tar", {})}, {"._n02.tar", "x"}});
  const PhotoSources sources = *imagenet_train_sources(folder_.path());
  EXPECT_THAT(sources.classes, ElementsAre("n02"));
  EXPECT_THAT(photos_of(sources), ElementsAre("n02/n02_1.JPEG 0 one"));
  EXPECT_THAT(sources.notes, ElementsAre(HasSubstr("no class of n01.tar, n03.tar")));
  EXPECT_EQ(sources.passed_over, 2);
}

TEST_F(ImagenetTest, ATrainingArchiveOfPhotosIsNone) {
  pack("ILSVRC2012_img_train.tar", {{"n01_5.JPEG", "five"}});
  EXPECT_THAT(message_of([&] { imagenet_train_sources(folder_.path()); }), HasSubstr("one per synset"));
}

TEST_F(ImagenetTest, AFolderWithoutImagesOfASplitHasNone) {
  EXPECT_FALSE(imagenet_train_sources(folder_.path()));
  EXPECT_FALSE(val(""));
}

TEST_F(ImagenetTest, TheDevelopmentKitLabelsImagesByTheirNumbers) {
  Content images;
  std::string truth;
  std::vector<std::string> expected;
  for (int i = 12; i >= 1; --i) images.emplace_back(format("ILSVRC2012_val_{:08}.JPEG", i), std::to_string(i));
  const std::string ids[] = {"1", "2", "3"}, labels[] = {"2", "0", "1"};
  for (size_t i = 1; i <= 12; ++i) {
    truth += ids[i % 3] + "\n";
    expected.push_back(format("ILSVRC2012_val_{:08}.JPEG {} {}", i, labels[i % 3], i));
  }
  pack("ILSVRC2012_img_val.tar", images);
  write_devkit(truth);
  const PhotoSources sources = *val("");
  EXPECT_THAT(sources.classes, ElementsAre("n02100735", "n02110185", "n02119789"));
  EXPECT_EQ(photos_of(sources), expected);
  EXPECT_THAT(val("", {"n02119789\tkit fox", "n02110185", "n02100735"})->photos[0].label, 2);  // image 1 has id 2
}

TEST_F(ImagenetTest, AGroundTruthThatNamesNoSynsetIsAnError) {
  pack("ILSVRC2012_img_val.tar", {{"ILSVRC2012_val_00000001.JPEG", "1"}});
  for (const std::string line : {"0", "1001", "two", ""}) {
    write_devkit("1000\n" + line + "\n1\n");
    EXPECT_THAT(message_of([&] { val(""); }), AllOf(HasSubstr("line 2 of its data/ILSVRC2012_validation"),
                                                    HasSubstr("is '" + line + "', wanted a number")));
  }
}

TEST_F(ImagenetTest, ADevelopmentKitWithoutGroundTruthIsAnError) {
  pack("ILSVRC2012_img_val.tar", {{"ILSVRC2012_val_00000001.JPEG", "1"}});
  pack("ILSVRC2012_devkit_t12.tar.gz", {{"kit/readme.txt", "1"}});
  EXPECT_THAT(message_of([&] { val(""); }), HasSubstr("holds no data/ILSVRC2012_validation_ground_truth.txt"));
}

// The first images of the validation set: ids from the development kit, labels from Caffe's val.txt.
TEST_F(ImagenetTest, SynsetsAreInTheOrderOfTheirIds) {
  const std::vector<Synset> synsets = ilsvrc_synsets();
  std::vector<std::string_view> sorted;
  for (const Synset& synset : synsets) sorted.push_back(synset.wnid);
  std::sort(sorted.begin(), sorted.end());
  ASSERT_EQ(std::unique(sorted.begin(), sorted.end()) - sorted.begin(), 1000);
  const std::pair<size_t, size_t> ids_and_labels[] = {{490, 65}, {361, 970}, {171, 230}, {822, 809}, {297, 516},
                                                      {482, 57}, {13, 334},  {704, 415}, {599, 674}, {164, 332}};
  for (const auto& [id, label] : ids_and_labels) EXPECT_EQ(synsets[id - 1].wnid, sorted[label]) << id;
  for (const Synset& synset : synsets) {
    EXPECT_THAT(std::string(synset.wnid), MatchesRegex("n[0-9]{8}"));
    EXPECT_THAT(std::string(synset.words), MatchesRegex("[A-Za-z].*[a-zA-Z.]")) << synset.wnid;
  }
}

TEST_F(ImagenetTest, AFlatFolderTakesItsLabelsFromAList) {
  for (const char* name : {"b.JPEG", "a.jpg", ".hidden.jpg", "c.png"}) write(std::string("val/") + name, name);
  write("val/notes.txt", "not an image");
  write("val/.directory/x.jpg", "hidden");
  write("labels.txt", "a.jpg n02\n\nb.JPEG,1\n , \nsome/where/c.JPEG\tn01\nc.png n01\nelsewhere.png n02\n");
  const PhotoSources sources = *val("labels.txt", {"n01\ttench", "n02"});
  EXPECT_THAT(photos_of(sources), ElementsAre("a.jpg 1 a.jpg", "b.JPEG 1 b.JPEG", "c.png 0 c.png"));
  EXPECT_THAT(sources.classes, ElementsAre("n01\ttench", "n02"));
  EXPECT_EQ(sources.passed_over, 1);
}

TEST_F(ImagenetTest, WithoutKnownClassesThoseOfTheListAreSorted) {
  write("val/a.JPEG", "a");
  write("val/b.JPEG", "b");
  write("labels.txt", "a n09\nb n05\n");
  const PhotoSources sources = *val("labels.txt");
  EXPECT_THAT(sources.classes, ElementsAre("n05", "n09"));
  EXPECT_THAT(photos_of(sources), ElementsAre("a.JPEG 1 a", "b.JPEG 0 b"));
}

TEST_F(ImagenetTest, KagglesTableIsFoundByItself) {
  write("val/a.JPEG", "a");
  write("val/b.JPEG", "b");
  write("LOC_val_solution.csv", "ImageId,PredictionString\na,n02 1 2 3 4 \nb,n01 5 6 7 8 n01 9 10 11 12 \n");
  EXPECT_THAT(photos_of(*val("", {"n01", "n02"})), ElementsAre("a.JPEG 1 a", "b.JPEG 0 b"));
  fs::remove(folder_.file("LOC_val_solution.csv"));
  EXPECT_THAT(message_of([&] { val(""); }), HasSubstr("--val-labels FILE"));
}

TEST_F(ImagenetTest, WrongLinesOfAListOfLabelsAreNamed) {
  EXPECT_THAT(error_of_list("a n01\nb\n"), HasSubstr("labels.txt:2: wanted the name of a file and a label, found 'b'"));
  EXPECT_THAT(error_of_list("a 2\n"), HasSubstr("labels.txt:1: label 2, but 2 classes are known"));
  EXPECT_THAT(error_of_list("a -1\n"), HasSubstr("labels.txt:1: label -1"));
  EXPECT_THAT(error_of_list("a n01\n\na n02\n"), HasSubstr("labels.txt:3: a has two labels, n01 and n02"));
  EXPECT_THAT(error_of_list("b n01\n"), HasSubstr("no label for the validation image a.JPEG"));
  EXPECT_THAT(error_of_list("a n03\n"), AllOf(HasSubstr("class 'n03'"), HasSubstr("none of the 2 known classes")));
  EXPECT_THAT(error_of_list("a 0\n", {"n01", "0"}),
              HasSubstr("may be class number 0, 'n01', or the class of this name"));
  EXPECT_EQ(error_of_list("a 1\na 1\n"), "");
  EXPECT_EQ(error_of_list("a 1\n", {"n01", "1"}), "");
}

TEST_F(ImagenetTest, AFolderPerClassSaysTheLabelsItself) {
  write("val/n02/x.JPEG", "x");
  write("val/n01/y.JPEG", "y");
  EXPECT_THAT(photos_of(*val("")), ElementsAre("n01/y.JPEG 0 y", "n02/x.JPEG 1 x"));
  write("labels.txt", "x n01\n");
  EXPECT_THAT(message_of([&] { val("labels.txt"); }), HasSubstr("leave out --val-labels"));
  write("val/z.JPEG", "z");
  EXPECT_THAT(message_of([&] { val(""); }), HasSubstr("holds the image z.JPEG beside folders"));
}

TEST_F(ImagenetTest, AnEmptyValidationArchiveIsAnError) {
  pack("ILSVRC2012_img_val.tar", {});
  EXPECT_THAT(message_of([&] { val(""); }), HasSubstr("holds no files"));
}

TEST_F(ImagenetTest, SynsetsGetTheirWords) {
  EXPECT_THAT(named_classes({"n01440764", "n01", "n02119789"}),
              ElementsAre("n01440764\ttench, Tinca tinca", "n01", "n02119789\tkit fox, Vulpes macrotis"));
}

}  // namespace
}  // namespace owt::imagenet_test

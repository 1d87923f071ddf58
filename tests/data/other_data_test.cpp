#include "data/other_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/cifar.h"
#include "data/shards.h"
#include "tests/support/message_of.h"
#include "tests/support/shards.h"

namespace owt::other_data_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class OtherData : public testing::Test {
 protected:
  void write(const std::string& name) const {
    fs::create_directories(fs::path(folder_.file(name)).parent_path());
    write_bytes(folder_.file(name), "");
  }
  std::string said() const { return other_data(folder_.path()); }

  TempFolder folder_;
};

TEST_F(OtherData, NothingIsSaidOfOtherFilesAndOfNoFolder) {
  write("a.txt");
  write("b/c.csv");
  fs::create_symlink("loop", folder_.file("loop"));
  EXPECT_EQ(said(), "");
  EXPECT_EQ(other_data(folder_.file("nowhere")), "");
  EXPECT_EQ(other_data(folder_.file("loop")), "");
}

TEST_F(OtherData, FoldersOfImagesAreKnownAtEachLevel) {
  write("a.jpg");
  EXPECT_THAT(said(), AllOf(HasSubstr("images (a.jpg)"), HasSubstr("owt prepare list")));
  write("cat/more/a.png");
  write("dog/b.jpg");
  EXPECT_THAT(said(), AllOf(HasSubstr("(cat, dog)"), HasSubstr("owt prepare folder " + folder_.path() + " OUT")));
  fs::create_directories(folder_.file("up/train"));
  fs::rename(folder_.file("cat"), folder_.file("up/train/cat"));
  EXPECT_THAT(other_data(folder_.file("up")), HasSubstr("owt prepare folder " + folder_.file("up/train") + " OUT"));
  write("up/val/cat/c.jpg");
  EXPECT_THAT(other_data(folder_.file("up")), HasSubstr("owt prepare imagenet " + folder_.file("up") + " OUT"));
}

TEST_F(OtherData, ArchivesAndOtherFormatsAreKnown) {
  write("train/set-0.tar");
  EXPECT_THAT(said(), HasSubstr("owt prepare index " + folder_.path()));
  write("ILSVRC2012_img_val.tar");
  EXPECT_THAT(said(), HasSubstr("owt prepare imagenet"));
  write("cifar-10-batches-bin/test_batch.bin");
  EXPECT_THAT(said(), HasSubstr("CIFAR-10"));
}

TEST_F(OtherData, ReadersOfOneFormatNameTheOther) {
  write_split(folder_.file("set"), "train", {});
  EXPECT_THAT(message_of([&] { read_cifar(folder_.file("set"), CifarKind::k10, Split::kTrain); }),
              AllOf(HasSubstr("no CIFAR-10 in "), HasSubstr("format = \"shards\"")));
  write("photos/cat/1.jpg");
  EXPECT_THAT(message_of([&] { ShardDataset(folder_.file("photos"), Split::kTrain, {}); }),
              AllOf(HasSubstr("no prepared data set"), HasSubstr("owt prepare folder " + folder_.file("photos"))));
}

}  // namespace
}  // namespace owt::other_data_test

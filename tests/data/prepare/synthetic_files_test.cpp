#include "data/prepare/synthetic_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/cifar.h"
#include "data/photos/photo.h"
#include "data/prepare/photo_sources.h"
#include "data/synthetic.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::synthetic_files_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PrepareSynthetic : public testing::Test {
 protected:
  const std::string& dir() const { return folder_.path(); }
  TempFolder folder_;
};

TEST_F(PrepareSynthetic, WritesFilesThatReadBackAsTheSameImages) {
  const std::string made = prepare_synthetic(dir(), 23, 12, 9);
  EXPECT_EQ(made, dir() + "/cifar-10-batches-bin");
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const auto read = read_cifar(dir(), CifarKind::k10, split);
    const SyntheticDataset drawn({.size = split == Split::kTrain ? 23 : 12, .seed = 9, .split = split});
    ASSERT_EQ(read->size(), drawn.size());
    EXPECT_EQ(read->checksum(), drawn.checksum());
    EXPECT_EQ(read->class_names(), drawn.class_names());
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir()), {}), 1) << "nothing is left beside";
}

TEST_F(PrepareSynthetic, KeepsADataSetThatIsThereUnlessForced) {
  prepare_synthetic(dir(), 10, 5, 9);
  EXPECT_THAT(message_of([&] { prepare_synthetic(dir(), 20, 5, 9); }), HasSubstr("exists already"));
  EXPECT_EQ(read_cifar(dir(), CifarKind::k10, Split::kTrain)->size(), 10);
  prepare_synthetic(dir(), 20, 5, 9, true);
  EXPECT_EQ(read_cifar(dir(), CifarKind::k10, Split::kTrain)->size(), 20);
}

TEST_F(PrepareSynthetic, NeverReplacesAFolderWithOtherFiles) {
  prepare_synthetic(dir(), 10, 5, 9);
  write_file_atomically(dir() + "/cifar-10-batches-bin/readme.html", "official");
  EXPECT_THAT(message_of([&] { prepare_synthetic(dir(), 20, 5, 9, true); }), HasSubstr("holds readme.html"));
  EXPECT_EQ(read_cifar(dir(), CifarKind::k10, Split::kTrain)->size(), 10);
}

TEST_F(PrepareSynthetic, RejectsTooFewImagesAndAFolderThatCannotBeMade) {
  EXPECT_THROW(prepare_synthetic(dir(), 4, 5, 9), Error);
  EXPECT_THROW(prepare_synthetic(dir(), 5, 0, 9), Error);
  write_file_atomically(dir() + "/file", "in the way");
  EXPECT_THAT(message_of([&] { prepare_synthetic(dir() + "/file", 5, 5, 9); }), HasSubstr("cannot make folder"));
}

bool always(int64_t) { return true; }

TEST_F(PrepareSynthetic, WritesPhotographsThatAFolderPerClassIsReadFrom) {
  for (const Split split : {Split::kTrain, Split::kTest})
    ASSERT_TRUE(write_synthetic_photos(dir(), {.classes = 12, .seed = 5, .split = split}, 25, 2, always));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir()), {}), 2) << "nothing is left beside";
  for (const std::string split : {"train", "val"}) {
    const SyntheticPhotos photos{.classes = 12, .seed = 5, .split = split == "train" ? Split::kTrain : Split::kTest};
    const PhotoSources found = folder_sources(dir() + "/" + split);
    EXPECT_EQ(found.photos.size(), 25u);
    EXPECT_THAT(found.classes, testing::UnorderedElementsAreArray(photos.class_names()));
    const std::string name = photos.class_names()[23 % 12] + "/0000023.jpg";
    EXPECT_EQ(read_file(dir() + "/" + split + "/" + name), jpeg_of(photos.draw(23), {}));
  }
}

TEST_F(PrepareSynthetic, LeavesNoPhotographsWhereItIsStoppedAndNeverReplacesAny) {
  EXPECT_FALSE(write_synthetic_photos(dir(), {}, 25, 2, [](int64_t done) { return done < 10; }));
  EXPECT_TRUE(fs::is_empty(dir()));
  ASSERT_TRUE(write_synthetic_photos(dir(), {}, 3, 1, always));
  EXPECT_THAT(message_of([&] { write_synthetic_photos(dir(), {}, 3, 1, always); }),
              HasSubstr("train exists already; remove it"));
  EXPECT_THROW(write_synthetic_photos(dir() + "/none", {}, 0, 1, always), Error);
  EXPECT_THROW(write_synthetic_photos(dir() + "/none", {.classes = 101}, 3, 1, always), Error);
}

}  // namespace
}  // namespace owt::synthetic_files_test

#include "data/prepare/synthetic_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/cifar.h"
#include "data/synthetic.h"
#include "src/core/files.h"
#include "tests/support/temp_folder.h"

namespace owt {
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
  EXPECT_THAT([&] { prepare_synthetic(dir(), 20, 5, 9); }, testing::ThrowsMessage<Error>(HasSubstr("exists already")));
  EXPECT_EQ(read_cifar(dir(), CifarKind::k10, Split::kTrain)->size(), 10);
  prepare_synthetic(dir(), 20, 5, 9, true);
  EXPECT_EQ(read_cifar(dir(), CifarKind::k10, Split::kTrain)->size(), 20);
}

TEST_F(PrepareSynthetic, NeverReplacesAFolderWithOtherFiles) {
  prepare_synthetic(dir(), 10, 5, 9);
  write_file_atomically(dir() + "/cifar-10-batches-bin/readme.html", "official");
  EXPECT_THAT([&] { prepare_synthetic(dir(), 20, 5, 9, true); },
              testing::ThrowsMessage<Error>(HasSubstr("holds readme.html")));
  EXPECT_EQ(read_cifar(dir(), CifarKind::k10, Split::kTrain)->size(), 10);
}

TEST_F(PrepareSynthetic, RejectsTooFewImagesAndAFolderThatCannotBeMade) {
  EXPECT_THROW(prepare_synthetic(dir(), 4, 5, 9), Error);
  EXPECT_THROW(prepare_synthetic(dir(), 5, 0, 9), Error);
  write_file_atomically(dir() + "/file", "in the way");
  EXPECT_THAT([&] { prepare_synthetic(dir() + "/file", 5, 5, 9); },
              testing::ThrowsMessage<Error>(HasSubstr("cannot make folder")));
}

}  // namespace
}  // namespace owt

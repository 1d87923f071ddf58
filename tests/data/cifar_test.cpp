#include "data/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/memory_dataset.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::cifar_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A record with pixel bytes channel * 10 + (place in the plane) % 8.
std::string record(std::initializer_list<int> labels) {
  std::string bytes;
  for (const int label : labels) bytes += static_cast<char>(label);
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 1024; ++p) bytes += static_cast<char>(c * 10 + p % 8);
  return bytes;
}

class CifarTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) {
    const fs::path path = fs::path(dir()) / name;
    fs::create_directories(path.parent_path());
    write_file_atomically(path.string(), content);
  }
  const std::string& dir() const { return folder_.path(); }
  std::vector<int> labels(const Dataset& dataset) {
    std::vector<int> all;
    for (int64_t i = 0; i < dataset.size(); ++i) all.push_back(dataset.label(i));
    return all;
  }
  std::string error(Split split = Split::kTrain) {
    return message_of([&] { read_cifar(dir(), CifarKind::k10, split); });
  }

  TempFolder folder_;
};

TEST_F(CifarTest, ReadsTrainingFilesInTheOrderOfTheirNumbers) {
  put("data_batch_2.bin", record({7}));
  put("data_batch_1.bin", record({3}) + record({0}));
  const auto images = read_cifar(dir(), CifarKind::k10, Split::kTrain);
  EXPECT_THAT(labels(*images), ElementsAre(3, 0, 7));
  EXPECT_EQ(images->classes(), 10);
  EXPECT_EQ(images->image(), (Shape{32, 32, 3}));
}

TEST_F(CifarTest, InOneChannelGivesTheLuma) {
  put("data_batch_1.bin", record({3}) + record({0}));
  const auto images = read_cifar(dir(), CifarKind::k10, Split::kTrain, 1);
  EXPECT_EQ(images->image(), (Shape{32, 32, 1}));
  EXPECT_THAT(labels(*images), ElementsAre(3, 0));
  std::vector<uint8_t> pixels(1024);
  images->read(1, {}, pixels.data());
  for (size_t p = 0; p < 1024; ++p) {  // 0.587 * 10 + 0.114 * 20 = 8.15
    ASSERT_EQ(pixels[p], p % 8 + 8);
  }
}

TEST_F(CifarTest, ReadsMoreThanTheOfficialFiveFiles) {
  for (int i = 1; i <= 11; ++i) put(concat("data_batch_", i, ".bin"), record({i % 10}));
  EXPECT_EQ(read_cifar(dir(), CifarKind::k10, Split::kTrain)->size(), 11);
}

TEST_F(CifarTest, TurnsPlanesIntoPixels) {
  put("test_batch.bin", record({1}));
  std::vector<uint8_t> pixels(3072);
  read_cifar(dir(), CifarKind::k10, Split::kTest)->read(0, View{}, pixels.data());
  pixels.resize(6);
  EXPECT_THAT(pixels, ElementsAre(0, 10, 20, 1, 11, 21));
}

TEST_F(CifarTest, FindsTheFolderInsideTheGivenOne) {
  put("cifar-10-batches-bin/test_batch.bin", record({5}));
  EXPECT_THAT(labels(*read_cifar(dir(), CifarKind::k10, Split::kTest)), ElementsAre(5));
}

TEST_F(CifarTest, ReadsTheFineLabelOfCifar100) {
  put("cifar-100-binary/train.bin", record({19, 99}) + record({0, 20}));
  const auto images = read_cifar(dir(), CifarKind::k100, Split::kTrain);
  EXPECT_THAT(labels(*images), ElementsAre(99, 20));
  EXPECT_EQ(images->classes(), 100);
}

TEST_F(CifarTest, ReadsClassNamesWhereThereAreSome) {
  put("test_batch.bin", record({5}));
  EXPECT_THAT(read_cifar(dir(), CifarKind::k10, Split::kTest)->class_names(), IsEmpty());
  put("batches.meta.txt", "a\nb\nc\r\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_THAT(read_cifar(dir(), CifarKind::k10, Split::kTest)->class_names(),
              ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j"));
}

TEST_F(CifarTest, RejectsAListOfNamesOfTheWrongLength) {
  put("test_batch.bin", record({5}));
  put("batches.meta.txt", "a\nb\n");
  EXPECT_THAT(error(Split::kTest), HasSubstr("batches.meta.txt has 2 class names, wanted 10"));
}

TEST_F(CifarTest, SaysWhereItLookedAndHowToGetTheData) {
  EXPECT_THAT(error(), AllOf(HasSubstr("no CIFAR-10 in " + dir()), HasSubstr(dir() + "/cifar-10-batches-bin"),
                             HasSubstr("tools/fetch_cifar10.sh"), HasSubstr("owt prepare synthetic")));
  EXPECT_THAT(message_of([&] { read_cifar(dir() + "/none", CifarKind::k10, Split::kTest); }),
              HasSubstr("there is no such folder"));
}

TEST_F(CifarTest, NamesTheMissingFileOfASplit) {
  put("data_batch_1.bin", record({1}));
  EXPECT_THAT(error(Split::kTest), HasSubstr("no " + dir() + "/test_batch.bin"));
}

TEST_F(CifarTest, RejectsAGapInTheTrainingFiles) {
  put("data_batch_1.bin", record({1}));
  put("data_batch_3.bin", record({1}));
  EXPECT_THAT(error(), AllOf(HasSubstr("data_batch_2.bin, but there is data_batch_3.bin"), HasSubstr("incomplete")));
}

TEST_F(CifarTest, RejectsATruncatedFile) {
  put("data_batch_1.bin", record({1}) + record({2}).substr(0, 100));
  EXPECT_THAT(error(), AllOf(HasSubstr("data_batch_1.bin has 3173 bytes"), HasSubstr("record of 3073 bytes"),
                             HasSubstr("1 images and 100 bytes")));
}

TEST_F(CifarTest, RejectsAnEmptyFile) {
  put("data_batch_1.bin", "");
  EXPECT_THAT(error(), HasSubstr("data_batch_1.bin is empty"));
}

TEST_F(CifarTest, NamesFileRecordAndValueOfALabelOutOfRange) {
  put("data_batch_1.bin", record({1}));
  put("data_batch_2.bin", record({9}) + record({10}));
  EXPECT_THAT(error(), HasSubstr("data_batch_2.bin: record 1 (from 0) has label 10, wanted 0 to 9"));
}

TEST_F(CifarTest, ReadsBackWhatItWrote) {
  std::vector<uint8_t> pixels(3 * 3072);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7 % 251);
  const MemoryDataset images({32, 32, 3}, 10, pixels, {4, 9, 2});
  write_cifar10_file(dir() + "/test_batch.bin", images, {1, 3});
  const auto read = read_cifar(dir(), CifarKind::k10, Split::kTest);
  EXPECT_THAT(labels(*read), ElementsAre(9, 2));
  std::vector<uint8_t> back(2 * 3072);
  for (int64_t i = 0; i < 2; ++i) read->read(i, View{}, back.data() + i * 3072);
  EXPECT_EQ(back, std::vector<uint8_t>(pixels.begin() + 3072, pixels.end()));
}

}  // namespace
}  // namespace owt::cifar_test

#include "data/relabelled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "data/held_out.h"
#include "src/system/files.h"
#include "tests/data/batches.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::relabelled_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NamedImages : public MemoryDataset {
 public:
  NamedImages(std::vector<std::string> images, std::vector<std::string> classes)
      : MemoryDataset({1, 1, 1}, static_cast<int>(classes.size()), std::vector<uint8_t>(images.size()),
                      std::vector<uint8_t>(images.size()), classes),
        names_(std::move(images)) {}
  std::string name(int64_t index) const override { return names_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::string> names_;
};

class TargetTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Dataset> read(const std::string& table, bool sum_to_1 = false, int64_t classes = 0) const {
    write_file_atomically(path_, table);
    return with_targets(images_, path_, classes, sum_to_1);
  }
  std::string error_of(const std::string& table, bool sum_to_1 = false) const {
    return message_of([&] { read(table, sum_to_1); });
  }
  static std::vector<float> targets_of(const Dataset& images, int64_t index) {
    std::vector<int32_t> bits(static_cast<size_t>(images.targets()));
    images.write_targets(index, bits.data());
    std::vector<float> targets;
    for (const int32_t each : bits) targets.push_back(target_of(each));
    return targets;
  }

  TempFolder folder_;
  std::string path_ = targets_path(folder_.path(), Split::kTest);
  std::shared_ptr<const Dataset> images_ =
      std::make_shared<NamedImages>(std::vector<std::string>{"a.jpg", "b, c.jpg", "d.jpg"},
                                    std::vector<std::string>{"ant\tof the wood", "bee", "large cow"});
};

TEST_F(TargetTableTest, ColumnsAndLinesComeInAnyOrder) {
  EXPECT_THAT(path_, testing::EndsWith("/targets_test.csv"));
  const auto by_name = read(
      "\xEF\xBB\xBFname,large cow,ant,bee\r\nd.jpg,1,0.25,0\r\n\"b, c.jpg\",0,0,0\r\na.jpg,0.5,0.125,1e-3\r\n\r\n");
  EXPECT_THAT(targets_of(*by_name, 0), ElementsAre(0.125f, 0.001f, 0.5f));
  EXPECT_THAT(targets_of(*by_name, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(targets_of(*by_name, 2), ElementsAre(0.25f, 0, 1));
  const auto by_index = read("index,large cow,ant,bee\n2,1,0.25,0\n1,0,0,0\n0,0.5,0.125,0.001");
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(targets_of(*by_index, i), targets_of(*by_name, i));
  EXPECT_EQ(by_index->checksum(), by_name->checksum());
}

TEST_F(TargetTableTest, TheLabelIsTheFirstClassWithTheLargestTarget) {
  const auto made = read("index,ant,bee,large cow\n0,0.2,0.7,0.7\n1,0,0,0\n2,0,0,0.1\n");
  EXPECT_THAT((std::vector<int>{made->label(0), made->label(1), made->label(2)}), ElementsAre(1, 0, 2));
}

TEST_F(TargetTableTest, TheChecksumCoversTheTargets) {
  const auto checksum = [&](const std::string& last) {
    return read("index,ant,bee,large cow\n0,1,0,0\n1,0,1,0\n2,0,0," + last)->checksum();
  };
  EXPECT_NE(checksum("1"), images_->checksum());
  EXPECT_NE(checksum("1"), checksum("0.9995"));
  EXPECT_EQ(checksum("1"), checksum("1.0"));
}

TEST_F(TargetTableTest, PartsAndOtherOrdersOfClassesKeepTheTargetsOfTheirImages) {
  const std::string table = "index,ant,bee,large cow\n0,0.5,0.25,0\n1,0,1,0\n2,0,0,1\n";
  EXPECT_THAT(targets_of(*some_of(read(table), {1, 2}), 1), ElementsAre(0, 0, 1));
  const auto of_net = relabelled(read(table, false, 5), {4, 0, 1}, {"bee", "large cow", "dog", "elk", "ant"});
  EXPECT_EQ(of_net->targets(), 5);
  EXPECT_EQ(of_net->label(0), 4);
  EXPECT_THAT(targets_of(*of_net, 0), ElementsAre(0.25f, 0, 0, 0, 0.5f));
}

TEST_F(TargetTableTest, ClassesWithoutNamesAreCalledByTheirNumbers) {
  images_ = numbered_images(2);
  std::string table = "index";
  for (int c = 255; c >= 0; --c) table += "," + std::to_string(c);
  for (const char* line : {"\n1,1", "\n0,0.5"}) {
    table += line;
    for (int c = 1; c < 256; ++c) table += ",0";
  }
  EXPECT_EQ(read(table)->label(1), 255);
  EXPECT_THAT(error_of("name,0\na,1\n"), HasSubstr(":1: these images have no names; make the first column index"));
}

TEST_F(TargetTableTest, AFaultIsNamedWithFileAndLine) {
  const std::string head = "index,ant,bee,large cow\n", good = "0,1,0,0\n1,0,1,0\n2,0,0,1\n";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", " is empty"},
      {"file,ant,bee,large cow\n", ":1: the first column is 'file', wanted index"},
      {"index,ant,bee,fly\n", ":1: column 'fly' is no class ('ant of the wood', 'bee', 'large cow')"},
      {"index,ant,bee,bee\n", ":1: column 'bee' is no class"},
      {"index,ant,bee\n", ":1: there is no column of class 'large cow'"},
      {head + "0,1,0\n", ":2: found 3 fields, wanted 4"},
      {head + "0,1,0,0,0\n", ":2: found 5 fields, wanted 4"},
      {head + "0,\"1,0,0\n1,0,1,0\n2,0,0,1\n", ":2: found 2 fields, wanted 4"},
      {head + good + "1,0,1,0\n", ":5: image 1 comes a second time"},
      {head + good + "3,0,1,0\n", ":5: '3' is no image, wanted 0 to 2"},
      {head + "-1,0,1,0\n", ":2: '-1' is no image"},
      {head + "a.jpg,0,1,0\n", ":2: 'a.jpg' is no image"},
      {"name,ant,bee,large cow\nx.jpg,1,0,0\n", ":2: no image is called 'x.jpg'"},
      {head + "0,1,0,\n", ":2: '' is no target, wanted a number from 0 to 1"},
      {head + "0,1,0,-0.1\n", ":2: '-0.1' is no target"},
      {head + "0,1,0,1.1\n", ":2: '1.1' is no target"},
      {head + "0,1,0,nan\n", ":2: 'nan' is no target"},
      {head + "0,1,0,0x\n", ":2: '0x' is no target"},
      {head + "1,1,0,0\n", " has no line for 2 of 3 images, first for image 0"},
      {"name,ant,bee,large cow\na.jpg,1,0,0\n", " has no line for 2 of 3 images, first for b, c.jpg"},
  };
  for (const auto& [table, wanted] : cases) EXPECT_THAT(error_of(table), HasSubstr(path_ + wanted)) << table;
  std::filesystem::remove(path_);
  EXPECT_THAT(message_of([&] { with_targets(images_, path_, 3, false); }), HasSubstr("no file " + path_));
}

TEST_F(TargetTableTest, TargetsOfASoftmaxAddUpTo1) {
  const std::string head = "index,ant,bee,large cow\n0,1,0,0\n1,0.3333,0.3333,0.3333\n2,";
  EXPECT_EQ(error_of(head + "0,0.9991,0\n", true), "");
  EXPECT_THAT(error_of(head + "0,0.998,0\n", true), HasSubstr(":4: the targets add up to 0.998, wanted 1"));
  EXPECT_THAT(error_of(head + "1,0,1\n", true), HasSubstr("need loss.type = \"logistic\""));
  EXPECT_THAT(error_of(head + "0,0,0\n", true), HasSubstr("the targets add up to 0, wanted 1"));
  EXPECT_EQ(error_of(head + "0,0,0\n", false), "");
}

TEST_F(TargetTableTest, NamesThatSeveralShareCannotNameThem) {
  images_ = std::make_shared<NamedImages>(std::vector<std::string>{"a", "a"}, std::vector<std::string>{"x", "x"});
  EXPECT_THAT(error_of("name,x\n"), HasSubstr(":1: several images are called 'a'; make the first column index"));
  EXPECT_THAT(error_of("index,x\n"), HasSubstr(":1: several classes are called 'x'"));
}

}  // namespace
}  // namespace owt::relabelled_test

#include "src/files/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/support/harness.h"
#include "tests/support/temp_folder.h"

namespace owt::npy_test {
namespace {

TEST(Npy, IsTheHeaderOfVersion1AndTheElementsInRowOrder) {
  const TempFolder folder;
  const std::string path = folder.file("x.npy");
  NpyWriter writer(path, {3, 2}, DType::kF32);
  writer.write(upload({1, 2}, {1, 2}, Device::kCpu));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.write(upload({3, 4, 5, 6}, {2, 2}, Device::kCpu));
  writer.close();

  const std::string bytes = read_file(path);
  // What numpy.save of version 1.24 writes for such an array.
  std::string header("\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", 69);
  header.resize(127, ' ');
  header += '\n';
  ASSERT_EQ(bytes.size(), header.size() + 6 * 4);
  EXPECT_EQ(bytes.substr(0, header.size()), header);
  float values[6];
  std::memcpy(values, bytes.data() + header.size(), sizeof values);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(values[i], static_cast<float>(i + 1));
}

TEST(Npy, AListHasAShapeOfOneWithAComma) {
  const TempFolder folder;
  NpyWriter writer(folder.file("x.npy"), {2}, DType::kI64);
  Tensor labels({2}, DType::kI64);
  labels.data<int64_t>()[0] = 7, labels.data<int64_t>()[1] = -1;
  writer.write(labels);
  writer.close();
  const std::string bytes = read_file(folder.file("x.npy"));
  EXPECT_NE(bytes.find("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"), std::string::npos);
  EXPECT_EQ(bytes.size(), 128u + 16u);
}

TEST(Npy, WithoutAllItsRowsThereIsNoFile) {
  const TempFolder folder;
  {
    NpyWriter writer(folder.file("x.npy"), {3, 2}, DType::kF32);
    writer.write(upload({1, 2}, {1, 2}, Device::kCpu));
    EXPECT_THROW(writer.close(), Error);
    EXPECT_THROW(writer.write(upload({1, 2, 3, 4, 5, 6}, {3, 2}, Device::kCpu)), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace owt::npy_test

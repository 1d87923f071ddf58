#include "src/core/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::columns_test {
namespace {

using ::testing::ElementsAre;

class ColumnsTest : public DeviceTest {
 protected:
  // Elements 0, 1, 2, ...
  Tensor counted(const Shape& shape, DType type) const {
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), 0.0f);
    return upload(values, shape, device(), type);
  }
  std::vector<float> copied(const Tensor& from, int64_t from_first, const Shape& to_shape, int64_t to_first,
                            int64_t width) const {
    Tensor to(to_shape, from.dtype(), device());
    fill(to, -1);
    copy_columns(from, from_first, to, to_first, width, stream_);
    stream_.synchronize();
    return download(to);
  }
  Stream stream_{device()};
};
INSTANTIATE_TEST_SUITE_P(Devices, ColumnsTest, ::testing::ValuesIn(devices()), device_name);

TEST_P(ColumnsTest, CopiesASliceOfEveryRowAndNothingElse) {
  EXPECT_THAT(copied(counted({2, 3}, DType::kF32), 1, {2, 4}, 1, 2), ElementsAre(-1, 1, 2, -1, -1, 4, 5, -1));
}

// Units of 16, 8, 4 and 2 bytes, at every alignment.
TEST_P(ColumnsTest, CopiesAnyWidthFromAnyPlaceToAnyPlace) {
  constexpr int64_t kRows = 3;
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const int64_t columns : {7, 8, 16, 24})
      for (const int64_t more : {0, 1, 8})
        for (const int64_t width : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{7}})
          for (const int64_t from_first : {int64_t{0}, columns - width})
            for (const int64_t to_first : {int64_t{0}, columns + more - width}) {
              const int64_t to_columns = columns + more;
              std::vector<float> wanted(static_cast<size_t>(kRows * to_columns), -1);
              for (int64_t row = 0; row < kRows; ++row)
                for (int64_t i = 0; i < width; ++i)
                  wanted[static_cast<size_t>(row * to_columns + to_first + i)] =
                      static_cast<float>(row * columns + from_first + i);
              ASSERT_EQ(copied(counted({kRows, columns}, type), from_first, {kRows, to_columns}, to_first, width),
                        wanted)
                  << name_of(type) << ", " << width << " columns of " << columns << " from " << from_first << " to "
                  << to_first << " of " << to_columns;
            }
}

TEST_P(ColumnsTest, CopiesManyRows) {
  const Tensor from = counted({1000, 12}, DType::kF32);
  const std::vector<float> all = download(from);
  std::vector<float> wanted;
  for (size_t row = 0; row < 1000; ++row)
    wanted.insert(wanted.end(), all.begin() + static_cast<int64_t>(row) * 12 + 4,
                  all.begin() + static_cast<int64_t>(row) * 12 + 9);
  EXPECT_EQ(copied(from, 4, {1000, 5}, 0, 5), wanted);
}

TEST_P(ColumnsTest, CopiesNothingOfNoRowsOrColumns) {
  EXPECT_THAT(copied(counted({2, 0}, DType::kF32), 0, {2, 1}, 0, 0), ElementsAre(-1, -1));
  EXPECT_THAT(copied(counted({0, 3}, DType::kF32), 0, {0, 3}, 0, 3), ElementsAre());
}

TEST_P(ColumnsTest, RefusesTensorsOfDifferentRowsOrTypes) {
  Tensor to({2, 3}, DType::kF32, device());
  EXPECT_THROW(copy_columns(Tensor({3, 3}, DType::kF32, device()), 0, to, 0, 3, stream_), Error);
  EXPECT_THROW(copy_columns(Tensor({2, 3}, DType::kBF16, device()), 0, to, 0, 3, stream_), Error);
}

}  // namespace
}  // namespace owt::columns_test

#include "src/core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "src/core/check.h"
#include "tests/support/harness.h"

namespace owt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// 0, 1, 2, ... in a shape.
Tensor counted(const Shape& shape) {
  Tensor tensor(shape);
  std::iota(tensor.data(), tensor.data() + tensor.elements(), 0.0f);
  return tensor;
}

TEST(Tensor, KnowsItsShapeTypeAndBytes) {
  const Tensor images({2, 3, 3, 1}, DType::kU8), weights({4, 5});
  EXPECT_EQ(images.bytes(), 18);
  EXPECT_EQ(weights.dtype(), DType::kF32);
  EXPECT_EQ(weights.bytes(), 80);
  EXPECT_TRUE(weights.defined());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, ElementSizesAreThoseOfTheTypes) {
  EXPECT_EQ(size_of(DType::kU8), 1);
  EXPECT_EQ(size_of(DType::kBF16), 2);
  EXPECT_EQ(size_of(DType::kF32), 4);
  EXPECT_EQ(size_of(DType::kI32), 4);
  EXPECT_EQ(size_of(DType::kI64), 8);
  EXPECT_EQ(size_of(DType::kF64), 8);
}

TEST(Tensor, RowsAreAViewOfTheSameMemory) {
  Tensor all = counted({4, 2});
  Tensor middle = all.rows(1, 3);
  EXPECT_EQ(middle.shape(), (Shape{2, 2}));
  EXPECT_THAT(download(middle), ElementsAre(2, 3, 4, 5));
  middle.zero();
  EXPECT_THAT(download(all), ElementsAre(0, 1, 0, 0, 0, 0, 6, 7));
}

TEST(Tensor, ViewsOfViewsAddTheirOffsets) {
  const Tensor all = counted({6, 2});
  EXPECT_THAT(download(all.rows(2, 6).rows(1, 2)), ElementsAre(6, 7));
  EXPECT_THAT(download(all.part(3, {2, 2}).reshaped({4}).part(1, {2})), ElementsAre(4, 5));
}

TEST(Tensor, ReshapedSharesMemoryAndOrder) {
  Tensor rows = counted({2, 3});
  Tensor flat = rows.reshaped({6});
  flat.data()[4] = 40;
  EXPECT_THAT(download(rows), ElementsAre(0, 1, 2, 3, 40, 5));
}

TEST(Tensor, ACopySharesMemoryAndACloneDoesNot) {
  Tensor one = counted({2});
  Tensor copy = one, clone = one.clone();
  one.data()[0] = 9;
  EXPECT_THAT(download(copy), ElementsAre(9, 1));
  EXPECT_THAT(download(clone), ElementsAre(0, 1));
}

TEST(Tensor, AViewKeepsTheMemoryAlive) {
  Tensor view;
  {
    const Tensor all = counted({3});
    view = all.rows(2, 3);
  }
  EXPECT_THAT(download(view), ElementsAre(2));
}

TEST(Tensor, CopiesElementsFromAnotherOfTheSameSize) {
  Tensor to({4});
  to.copy_from(counted({2, 2}));
  EXPECT_THAT(download(to), ElementsAre(0, 1, 2, 3));
  EXPECT_THROW(to.copy_from(counted({3})), Error);
}

TEST(Tensor, MemoryIsAlignedTo64Bytes) {
  for (const int64_t elements : {1, 3, 1000, 600'000})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Tensor({elements}).raw()) % 64, 0u) << elements;
}

TEST(Tensor, MayHaveNoElements) {
  Tensor none({0, 5});
  none.zero();
  none.copy_from(Tensor({5, 0}));
  EXPECT_EQ(none.rows(0, 0).elements(), 0);
  EXPECT_NE(none.data(), nullptr);
}

TEST(Tensor, RefusesAnotherElementType) {
  Tensor labels({2}, DType::kI32);
  EXPECT_NO_THROW(labels.data<int32_t>());
  EXPECT_THROW(labels.data<float>(), Error);
  EXPECT_THROW(Tensor({2}).data<uint8_t>(), Error);
}

TEST(Tensor, RefusesToGiveElementsWithoutMemory) { EXPECT_THROW(Tensor().data(), Error); }

TEST(Tensor, RefusesViewsOutOfBounds) {
  const Tensor all = counted({4, 2});
  EXPECT_THROW(all.rows(2, 5), Error);
  EXPECT_THROW(all.rows(-1, 2), Error);
  EXPECT_THROW(all.rows(3, 2), Error);
  EXPECT_THROW(all.reshaped({7}), Error);
  EXPECT_THROW(all.part(7, {2}), Error);
  EXPECT_THROW(all.part(-1, {2}), Error);
  EXPECT_THAT([&] { all.rows(2, 5); }, ThrowsMessage<Error>(HasSubstr("rows 2 to 5 of 4x2")));
}

}  // namespace
}  // namespace owt

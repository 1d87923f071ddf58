#include "src/core/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/check.h"

namespace owt::shape_test {
namespace {

TEST(Shape, CountsRowsAndElements) {
  const Shape batch{4, 3, 2, 5};
  EXPECT_EQ(batch.rank(), 4);
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.row_elements(), 30);
  EXPECT_EQ(batch.elements(), 120);
  EXPECT_EQ(batch[2], 2);
  EXPECT_EQ(batch.str(), "4x3x2x5");
}

TEST(Shape, OfNoDimensionIsAScalar) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().str(), "scalar");
}

TEST(Shape, MayHaveExtentsOfZero) {
  EXPECT_EQ((Shape{0, 7}.elements()), 0);
  EXPECT_EQ((Shape{7, 0}.elements()), 0);
  EXPECT_EQ((Shape{7, 0}.rows()), 7);
}

TEST(Shape, GainsLosesAndChangesItsRows) {
  const Shape image{6, 5, 3};
  EXPECT_EQ(image.batch_of(2), (Shape{2, 6, 5, 3}));
  EXPECT_EQ(image.batch_of(2).row(), image);
  EXPECT_EQ(image.batch_of(2).with_rows(9), (Shape{9, 6, 5, 3}));
}

TEST(Shape, DiffersWhereRankOrExtentsDo) {
  EXPECT_NE((Shape{6}), (Shape{6, 1}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_EQ((Shape{2, 3, 4}.row()), (Shape{3, 4}));
}

TEST(Shape, RefusesMoreThanFiveDimensionsAndRowsOfAScalar) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}.batch_of(2)), Error);
  EXPECT_THROW(Shape().row(), Error);
  EXPECT_THROW(Shape().with_rows(1), Error);
}

TEST(Split, DealsEvenPartsWhereItCan) {
  EXPECT_EQ(split(12, 4, 0), (Slice{0, 3}));
  EXPECT_EQ(split(12, 4, 3), (Slice{9, 12}));
}

TEST(Split, GivesTheFirstPartsOneMore) {
  EXPECT_EQ(split(10, 4, 0), (Slice{0, 3}));
  EXPECT_EQ(split(10, 4, 1), (Slice{3, 6}));
  EXPECT_EQ(split(10, 4, 2), (Slice{6, 8}));
  EXPECT_EQ(split(10, 4, 3), (Slice{8, 10}));
}

TEST(Split, LeavesPartsEmptyWhereThereAreTooFewItems) {
  EXPECT_EQ(split(2, 3, 1), (Slice{1, 2}));
  EXPECT_EQ(split(2, 3, 2), (Slice{2, 2}));
  EXPECT_EQ(split(0, 2, 1).size(), 0);
}

TEST(Split, CoversEveryItemOnceAndDiffersByOneAtMost) {
  for (int64_t total = 0; total < 40; ++total)
    for (int parts = 1; parts < 10; ++parts) {
      int64_t next = 0;
      for (int p = 0; p < parts; ++p) {
        const Slice part = split(total, parts, p);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.size(), total / parts);
        EXPECT_LE(part.size(), total / parts + 1);
        next = part.end;
      }
      EXPECT_EQ(next, total);
    }
}

TEST(Split, RefusesAPartThatIsNotThere) {
  EXPECT_THROW(split(4, 2, 2), Error);
  EXPECT_THROW(split(4, 2, -1), Error);
  EXPECT_THROW(split(4, 0, 0), Error);
}

}  // namespace
}  // namespace owt::shape_test

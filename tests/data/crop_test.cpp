#include "data/crop.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace owt::crop_test {
namespace {

constexpr uint32_t kMost = ~0u;

bool shows_image(const Crop& crop, int row, int column) {
  return crop.row_begin <= row && row < crop.row_end && crop.column_begin <= column && column < crop.column_end;
}

TEST(Crop, InsideTheImageShowsNothingElse) {
  constexpr CropGeometry kGeometry{.in_height = 6, .in_width = 8, .pad = 0, .out_height = 4, .out_width = 5};
  constexpr Crop kCrop = crop_at(kGeometry, 1, 2, false);
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 5; ++column) EXPECT_TRUE(shows_image(kCrop, row, column));
  EXPECT_EQ(kCrop.row_shift, 1);
  EXPECT_EQ(kCrop.column_shift, 2);
}

TEST(Crop, ShowsPaddingOutsideTheImage) {
  constexpr CropGeometry kGeometry{.in_height = 2, .in_width = 2, .pad = 3, .out_height = 4, .out_width = 4};
  // Padded rows 0 to 3: the image starts at 3. Padded columns 4 to 7: the image ends before 5.
  constexpr Crop kCrop = crop_at(kGeometry, 0, 4, false);
  EXPECT_EQ(kCrop.row_begin, 3);
  EXPECT_EQ(kCrop.row_end, 4);
  EXPECT_EQ(kCrop.column_begin, 0);
  EXPECT_EQ(kCrop.column_end, 1);
  EXPECT_TRUE(shows_image(kCrop, 3, 0));
  EXPECT_FALSE(shows_image(kCrop, 2, 0));
  EXPECT_FALSE(shows_image(kCrop, 3, 1));
  EXPECT_EQ(3 + kCrop.row_shift, 0) << "row 3 of the crop is row 0 of the image";
  EXPECT_EQ(0 + kCrop.column_shift, 1) << "column 0 of the crop is column 1 of the image";
}

TEST(Crop, InThePaddingAloneShowsNoImage) {
  constexpr CropGeometry kGeometry{.in_height = 1, .in_width = 1, .pad = 4, .out_height = 2, .out_width = 2};
  for (const auto& [top, left] : {std::pair{0, 0}, {7, 7}, {0, 7}, {4, 0}}) {
    const Crop crop = crop_at(kGeometry, top, left, false);
    for (int row = 0; row < 2; ++row)
      for (int column = 0; column < 2; ++column) EXPECT_FALSE(shows_image(crop, row, column)) << top << " " << left;
  }
}

TEST(Crop, RandomOnesReachEveryPlaceAndNoOther) {
  constexpr CropGeometry kGeometry{.in_height = 4, .in_width = 6, .pad = 1, .out_height = 3, .out_width = 6};
  std::set<int> rows, columns;
  for (uint64_t part = 0; part < 64; ++part) {
    const auto bits = static_cast<uint32_t>(part << 26);
    rows.insert(random_crop(kGeometry, bits, 0, 0, false).row_shift);
    columns.insert(random_crop(kGeometry, 0, bits, 0, false).column_shift);
  }
  EXPECT_EQ(rows, (std::set<int>{-1, 0, 1, 2}));
  EXPECT_EQ(columns, (std::set<int>{-1, 0, 1}));
  EXPECT_EQ(random_crop(kGeometry, kMost, kMost, 0, false).row_shift, 2);
  EXPECT_EQ(random_crop(kGeometry, kMost, kMost, 0, false).column_shift, 1);
}

TEST(Crop, MirrorsByTheLowestBitWhereAllowed) {
  constexpr CropGeometry kGeometry{.in_height = 4, .in_width = 4, .pad = 0, .out_height = 4, .out_width = 4};
  EXPECT_TRUE(random_crop(kGeometry, 0, 0, 1, true).mirrored);
  EXPECT_FALSE(random_crop(kGeometry, 0, 0, kMost - 1, true).mirrored);
  EXPECT_FALSE(random_crop(kGeometry, 0, 0, 1, false).mirrored);
  EXPECT_EQ(random_crop(kGeometry, 0, 0, 1, true).unmirrored(0), 3);
  EXPECT_EQ(random_crop(kGeometry, 0, 0, 1, true).unmirrored(3), 0);
  EXPECT_EQ(random_crop(kGeometry, 0, 0, 0, true).unmirrored(3), 3);
}

TEST(Crop, OfTheCentreIsRoundedUpAndLeft) {
  constexpr Crop kCrop =
      crop_of_place({.in_height = 5, .in_width = 4, .pad = 0, .out_height = 2, .out_width = 2}, 0, false);
  EXPECT_EQ(kCrop.row_shift, 1);
  EXPECT_EQ(kCrop.column_shift, 1);
  EXPECT_FALSE(kCrop.mirrored);
}

TEST(Crop, OfTheCornersComesInReadingOrder) {
  constexpr CropGeometry kGeometry{.in_height = 5, .in_width = 4, .pad = 0, .out_height = 2, .out_width = 3};
  constexpr std::pair<int, int> kCorners[] = {{0, 0}, {0, 1}, {3, 0}, {3, 1}};
  for (int place = 1; place < 5; ++place) {
    const Crop crop = crop_of_place(kGeometry, place, true);
    EXPECT_EQ(std::pair(crop.row_shift, crop.column_shift), kCorners[place - 1]) << "place " << place;
    EXPECT_TRUE(crop.mirrored);
  }
}

}  // namespace
}  // namespace owt::crop_test

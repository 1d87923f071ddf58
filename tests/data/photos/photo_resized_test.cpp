// Values of scaled photos; photo_test.cpp tests their sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/photos/photo.h"

namespace owt::photo_resized_test {
namespace {

using testing::ElementsAre;

// Square and grey, its columns of these values.
Photo columns_of(const std::vector<uint8_t>& values) {
  Photo photo{static_cast<int64_t>(values.size()), static_cast<int64_t>(values.size())};
  photo.pixels.resize(values.size() * values.size() * 3);
  for (size_t i = 0; i < photo.pixels.size(); ++i) photo.pixels[i] = values[i / 3 % values.size()];
  return photo;
}

std::vector<int> second_row(const Photo& photo) {
  std::vector<int> row;
  for (int64_t x = 0; x < photo.width; ++x) row.push_back(photo.pixels[static_cast<size_t>((photo.width + x) * 3)]);
  return row;
}

TEST(ResizedPhoto, ShrinksByTheMeanOfAllPixels) {
  EXPECT_THAT(second_row(resized(columns_of({200, 0, 0, 0, 0, 0, 0, 100}), 2)), ElementsAre(50, 25));
}

TEST(ResizedPhoto, GrowsByValuesBetweenItsPixels) {
  EXPECT_THAT(second_row(resized(columns_of({0, 200}), 4)), ElementsAre(0, 50, 150, 200));
}

TEST(ResizedPhoto, KeepsItsPixelsWhereTheSizeIsRight) {
  EXPECT_THAT(second_row(resized(columns_of({7, 0, 200}), 3)), ElementsAre(7, 0, 200));
}

}  // namespace
}  // namespace owt::photo_resized_test

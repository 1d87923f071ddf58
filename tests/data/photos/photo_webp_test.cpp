#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/photos/photo.h"
#include "tests/support/made_photos.h"

namespace owt::photo_webp_test {
namespace {

// The first frame of an animation is placed at its position; the remaining canvas is empty.
TEST(WebpPhoto, AFrameIsPutInItsPlaceOnWhite) {
  const Photo frame = quadrants(6, 8, kFourColours);
  for (const auto& [left, top] : {std::pair<int64_t, int64_t>{0, 0}, {4, 0}, {0, 2}, {6, 4}}) {
    const Photo canvas = read_photo(animated_webp(10, 14, frame, left, top));
    ASSERT_EQ(canvas.height, 10);
    ASSERT_EQ(canvas.width, 14);
    for (int64_t y = 0; y < 10; ++y)
      for (int64_t x = 0; x < 14; ++x)
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t fy = y - top, fx = x - left;
          const bool inside = fy >= 0 && fy < 6 && fx >= 0 && fx < 8;
          const int wanted = inside ? frame.pixels[static_cast<size_t>((fy * 8 + fx) * 3 + c)] : 255;
          ASSERT_EQ(canvas.pixels[static_cast<size_t>((y * 14 + x) * 3 + c)], wanted) << x << ", " << y;
        }
  }
  EXPECT_NO_THROW(read_photo(animated_webp(6, 8, frame, 0, 0)));
  EXPECT_THROW(read_photo(animated_webp(6, 8, frame, 2, 0)), BadPhoto);
  EXPECT_THROW(read_photo(animated_webp(6, 8, frame, 0, 2)), BadPhoto);
}

}  // namespace
}  // namespace owt::photo_webp_test

// Expectations of read photos, for tests of the readers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "data/photos/photo.h"
#include "tests/support/made_photos.h"
#include "tests/support/message_of.h"

namespace owt {

inline std::vector<int> pixel(const Photo& photo, int64_t y, int64_t x) {
  const uint8_t* p = photo.pixels.data() + (y * photo.width + x) * 3;
  return {p[0], p[1], p[2]};
}

// The colours in the middle of the four quadrants, each rounded to the nearest of kFourColours: 'A' to 'D'.
inline std::string layout(const Photo& photo) {
  std::string text;
  for (const int64_t y : {photo.height / 4, photo.height * 3 / 4})
    for (const int64_t x : {photo.width / 4, photo.width * 3 / 4}) {
      const std::vector<int> p = pixel(photo, y, x);
      char found = '?';
      for (size_t i = 0; i < kFourColours.size(); ++i) {
        const auto c = static_cast<int>(kFourColours[i]);
        if (std::abs(p[0] - (c >> 16)) < 9 && std::abs(p[1] - (c >> 8 & 255)) < 9 && std::abs(p[2] - (c & 255)) < 9)
          found = static_cast<char>('A' + i);
      }
      text += found;
    }
  return text;
}

inline Photo four_colours() { return quadrants(48, 64, kFourColours); }

inline std::string reason(const std::string& file, const PhotoLimits& limits = {}) {
  return message_of<BadPhoto>([&] { read_photo(file, limits); });
}

inline void expect_four_colours(const std::string& file) {
  const Photo photo = read_photo(file);
  EXPECT_EQ(photo.height, 48);
  EXPECT_EQ(photo.width, 64);
  EXPECT_EQ(layout(photo), "ABCD");
}

}  // namespace owt

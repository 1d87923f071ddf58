#include "data/photos/exif.h"

#include <gtest/gtest.h>

#include "tests/support/made_photos.h"

namespace owt::exif_test {
namespace {

constexpr uint32_t kByte = 1, kShort = 3, kLong = 4, kWidth = 256, kOrientation = 274;

struct ExifEntry {
  uint32_t tag, type, value;
};

// The first directory comes after `gap` unused bytes.
std::string made_exif(bool little, const std::vector<ExifEntry>& entries, size_t gap = 0) {
  const auto number = [little](uint32_t value, int bytes) {
    return little ? little_endian(value, bytes) : big_endian(value, bytes);
  };
  std::string all = (little ? "II" : "MM") + number(42, 2) + number(static_cast<uint32_t>(8 + gap), 4);
  all += std::string(gap, 'x') + number(static_cast<uint32_t>(entries.size()), 2);
  for (const auto& [tag, type, value] : entries) {
    const int bytes = type == kByte ? 1 : type == kShort ? 2 : 4;
    // The bytes after a short value are not part of it.
    all +=
        number(tag, 2) + number(type, 2) + number(1, 4) + number(value, bytes) + std::string(4 - size_t(bytes), '\7');
  }
  return all;
}

TEST(Exif, TheOrientationIsReadOfEveryTypeInBothByteOrders) {
  for (const bool little : {true, false})
    for (const uint32_t type : {kByte, kShort, kLong})
      for (uint32_t orientation = 1; orientation <= 8; ++orientation)
        for (const size_t gap : {size_t{0}, size_t{6}})
          EXPECT_EQ(exif_orientation(made_exif(little, {{kWidth, kShort, 3}, {kOrientation, type, orientation}}, gap)),
                    orientation)
              << little << ' ' << type;
}

TEST(Exif, ThePrefixOfJpegMayStandInFront) {
  const std::string prefix("Exif\0\0", 6), exif = made_exif(false, {{kOrientation, kShort, 6}});
  EXPECT_EQ(exif_orientation(prefix + exif), 6);
  EXPECT_EQ(exif_orientation(prefix + prefix + exif), 6);
  EXPECT_EQ(exif_orientation(prefix), 1);
  EXPECT_EQ(exif_orientation(prefix.substr(0, 5) + exif), 1);
}

TEST(Exif, StandsInAMarkerOfAJpegFileBeforeItsScans) {
  const std::string data = std::string("Exif\0\0", 6) + made_exif(false, {{kOrientation, kShort, 6}});
  const std::string start = "\xff\xd8", comment{"\xff\xfe\0\x04no", 6}, scan{"\xff\xda\0\x02", 4};
  const std::string exif = "\xff\xe1" + std::string(1, '\0') + static_cast<char>(data.size() + 2) + data;
  for (const std::string& file : {start + exif, start + comment + exif + scan, start + "\xff\xff" + exif,
                                  start + "rubbish" + exif, start + "\xff\xd0" + exif})
    EXPECT_EQ(jpeg_orientation(file), 6) << file;
  for (const std::string& file : {std::string(), start, start + scan + exif, start + comment, exif.substr(0, 3)})
    EXPECT_EQ(jpeg_orientation(file), 1) << file;
  for (size_t bytes = 0; bytes < exif.size() - 3; ++bytes)  // two of the four value bytes are read
    EXPECT_EQ(jpeg_orientation(start + exif.substr(0, bytes)), 1);
}

TEST(Exif, WhatSaysNothingUsableIsUpright) {
  EXPECT_EQ(exif_orientation(""), 1);
  EXPECT_EQ(exif_orientation("XX" + made_exif(true, {{kOrientation, kShort, 6}}).substr(2)), 1);
  EXPECT_EQ(exif_orientation(made_exif(true, {})), 1);
  EXPECT_EQ(exif_orientation(made_exif(true, {{kWidth, kShort, 6}})), 1);
  for (const uint32_t orientation : {0u, 9u, 255u})
    EXPECT_EQ(exif_orientation(made_exif(false, {{kOrientation, kShort, orientation}})), 1) << orientation;
  const std::string whole = made_exif(false, {{kWidth, kShort, 3}, {kOrientation, kLong, 6}});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_EQ(exif_orientation(whole.substr(0, bytes)), 1) << bytes;
}

// An entry after the counted entries is ignored.
TEST(Exif, EntriesAreThoseThatAreCounted) {
  std::string two = made_exif(true, {{kWidth, kShort, 3}, {kOrientation, kShort, 6}});
  two[8] = 1;
  EXPECT_EQ(exif_orientation(two), 1);
}

}  // namespace
}  // namespace owt::exif_test

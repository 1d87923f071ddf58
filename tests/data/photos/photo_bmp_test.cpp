#include "data/photos/photo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/system/files.h"
#include "tests/data/photos/read_photos.h"

namespace owt::photo_bmp_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(BmpPhoto, BmpIsReadOfEveryDepth) {
  expect_four_colours(made_bmp(four_colours()));
  expect_four_colours(made_bmp(four_colours(), std::string(1, '\0')));
  const std::string palette("\x1e\x14\x0a\0\x32\x64\xc8\0\x03\x02\x01\0", 12);  // 10,20,30 and 200,100,50 and 1,2,3
  for (const std::string& file :
       {made_bmp(2, 3, std::string("\xa0\0\0\0\x40\0\0\0", 8), {.bits = 1, .middle = palette.substr(0, 8)}),
        made_bmp(2, 3, std::string("\x10\x10\0\0\x01\0\0\0", 8), {.bits = 4, .middle = palette}),
        made_bmp(2, 3, std::string("\1\0\1\0\0\1\0\0", 8), {.bits = 8, .middle = palette}),
        made_bmp(-2, 3, std::string("\0\1\0\0\1\0\1\0", 8), {.bits = 8, .middle = palette})}) {
    const Photo photo = read_photo(file);
    ASSERT_EQ(photo.height, 2);
    EXPECT_THAT(pixel(photo, 0, 0), ElementsAre(10, 20, 30));
    EXPECT_THAT(pixel(photo, 0, 1), ElementsAre(200, 100, 50));
    EXPECT_THAT(pixel(photo, 1, 0), ElementsAre(200, 100, 50));
    EXPECT_THAT(pixel(photo, 1, 1), ElementsAre(10, 20, 30));
    EXPECT_THAT(pixel(photo, 1, 2), ElementsAre(200, 100, 50));
  }
  // OS/2's header of 12 bytes, with three bytes for each palette entry.
  const std::string old = "BM" + std::string(8, '\0') + little_endian(14 + 12 + 6) + little_endian(12) +
                          little_endian(2, 2) + little_endian(1, 2) + little_endian(1, 2) + little_endian(1, 2) +
                          std::string("\x1e\x14\x0a\x32\x64\xc8", 6) + std::string("\x40\0\0\0", 4);
  EXPECT_THAT(read_photo(old).pixels, ElementsAre(10, 20, 30, 200, 100, 50));
}

TEST(BmpPhoto, BmpOfSixteenBitsHasFiveOrSixForAColour) {
  const std::string white_then_red = little_endian(0x7fff, 2) + little_endian(0x7c00, 2);
  EXPECT_THAT(read_photo(made_bmp(1, 2, white_then_red, {.bits = 16})).pixels, ElementsAre(255, 255, 255, 255, 0, 0));
  constexpr uint32_t kBitFields = 3;
  const std::string masks = little_endian(0xf800) + little_endian(0x7e0) + little_endian(0x1f);
  const std::string white_then_green = little_endian(0xffff, 2) + little_endian(0x07e0, 2);
  EXPECT_THAT(read_photo(made_bmp(1, 2, white_then_green, {16, kBitFields, masks})).pixels,
              ElementsAre(255, 255, 255, 0, 255, 0));
  const std::string reversed = little_endian(0xff) + little_endian(0xff00) + little_endian(0xff0000);
  EXPECT_THAT(read_photo(made_bmp(1, 1, std::string("\x0a\x14\x1e\x28", 4), {32, kBitFields, reversed})).pixels,
              ElementsAre(10, 20, 30));
}

TEST(BmpPhoto, RunLengthsOfABmpAreUnpacked) {
  constexpr uint32_t kRunLengths8 = 1, kRunLengths4 = 2;
  std::string palette;
  for (int i = 0; i < 16; ++i) palette += std::string(3, static_cast<char>(10 * i)) + '\0';
  const auto grays = [&](const std::string& runs, int bits, uint32_t compression) {
    const Photo photo = read_photo(made_bmp(2, 5, runs, {bits, compression, palette}));
    std::vector<int> first;
    for (size_t i = 0; i < photo.pixels.size(); i += 3) first.push_back(photo.pixels[i] / 10);
    return first;
  };
  const auto expected = ElementsAre(0, 0, 7, 0, 0, 3, 3, 1, 2, 4);
  // The lower row: 3 twice, then 1, 2, 4 as they are; the upper: two to the right, then a 7.
  EXPECT_THAT(grays(std::string("\2\3\0\3\1\2\4\0\0\0\0\2\2\0\1\7\0\1", 18), 8, kRunLengths8), expected);
  EXPECT_THAT(grays(std::string("\2\x33\0\3\x12\x40\0\0\0\2\2\0\1\x70\0\1", 16), 4, kRunLengths4), expected);
  const auto refused = [&](const std::string& runs) {
    return reason(made_bmp(2, 5, runs, {8, kRunLengths8, palette}));
  };
  EXPECT_THAT(refused(std::string("\6\1\0\1", 4)), HasSubstr("longer than its row"));
  EXPECT_THAT(refused("\5\1"), HasSubstr("truncated BMP"));
}

TEST(BmpPhoto, CopiedRunsOfABmpEndWithWholeWords) {
  constexpr uint32_t kRunLengths4 = 2;
  std::string palette;
  for (int i = 0; i < 16; ++i) palette += std::string(3, static_cast<char>(i)) + '\0';
  for (int count = 3; count <= 8; ++count) {
    std::string indexes("\x12\x34\x56\x78", static_cast<size_t>((count + 1) / 2));
    indexes.resize((indexes.size() + 1) / 2 * 2);
    const std::string runs = std::string("\0", 1) + static_cast<char>(count) + indexes + std::string("\1\x90\0\1", 4);
    const Photo photo = read_photo(made_bmp(1, 9, runs, {4, kRunLengths4, palette}));
    for (int x = 0; x < 9; ++x)
      EXPECT_EQ(pixel(photo, 0, x)[0], x < count ? x + 1 : x == count ? 9 : 0) << x << " of " << count;
  }
}

TEST(BmpPhoto, BmpOfUnknownKindsAreRefused) {
  EXPECT_THAT(reason(made_bmp(1, 1, std::string(8, '\0'), {.bits = 2})), HasSubstr("not supported"));
  EXPECT_THAT(reason(made_bmp(1, 1, std::string(8, '\0'), {.bits = 24, .compression = 1})), HasSubstr("not supported"));
  EXPECT_THAT(reason(made_bmp(1, 1, std::string(8, '\0'), {.bits = 24, .compression = 4})), HasSubstr("not supported"));
  EXPECT_THAT(reason(made_bmp(0, 1, std::string(8, '\0'), {})), HasSubstr("no pixels"));
}

// Every value of a field of `bits` bits becomes the nearest value of 0 to 255.
TEST(BmpPhoto, ColoursOfAnyNumberOfBitsAreRoundedToTheNearestOfEight) {
  constexpr uint32_t kBitFields = 3;
  for (int bits = 1; bits <= 10; ++bits) {
    const uint32_t most = (1u << bits) - 1;
    const std::string masks = little_endian(most << 2) + little_endian(0) + little_endian(most << 20);
    for (uint32_t value = 0; value <= most; ++value) {
      const auto nearest = static_cast<int>(std::floor(255.0 * value / most + 0.5));
      const Photo photo =
          read_photo(made_bmp(1, 1, little_endian(value << 2 | (most - value) << 20), {32, kBitFields, masks}));
      EXPECT_EQ(photo.pixels[0], nearest) << value << " of " << most;
      EXPECT_EQ(photo.pixels[1], 0);
      EXPECT_EQ(photo.pixels[2], static_cast<int>(std::floor(255.0 * (most - value) / most + 0.5)));
    }
  }
}

}  // namespace
}  // namespace owt::photo_bmp_test

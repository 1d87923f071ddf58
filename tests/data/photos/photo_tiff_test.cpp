#include "data/photos/photo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/system/files.h"
#include "tests/data/photos/read_photos.h"

namespace owt::photo_tiff_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TiffPhoto, TiffIsReadOfEveryCompressionAndOrganisation) {
  const Photo photo = four_colours();
  for (const int compression : {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS})
    for (const uint32_t tile : {0u, 32u}) {
      expect_four_colours(written_tiff(photo, {.compression = compression, .tile = tile}));
      expect_four_colours(
          written_tiff(48, 64, {deepened(samples_of(photo))}, {.compression = compression, .bits = 16, .tile = tile}));
    }
  expect_four_colours(written_tiff(photo, {.compression = COMPRESSION_JPEG, .photometric = PHOTOMETRIC_YCBCR}));
  std::string planes(48 * 64 * 3, '\0');
  for (size_t i = 0; i < planes.size(); ++i) planes[i % 3 * 48 * 64 + i / 3] = samples_of(photo)[i];
  expect_four_colours(written_tiff(48, 64, {planes}, {.planar = PLANARCONFIG_SEPARATE}));
  expect_four_colours(written_tiff(48, 64, {deepened(planes)}, {.bits = 16, .planar = PLANARCONFIG_SEPARATE}));
}

TEST(TiffPhoto, TiffIsReadOfEveryColourSpace) {
  const auto first = [](const std::string& samples, const TiffKind& kind) {
    return pixel(read_photo(written_tiff(1, 8, {samples}, kind)), 0, 0);
  };
  const TiffKind gray{.photometric = PHOTOMETRIC_MINISBLACK, .channels = 1};
  TiffKind deep = gray, inverted = gray, bits = gray, inks{.photometric = PHOTOMETRIC_SEPARATED, .channels = 4};
  deep.bits = 16;
  inverted.photometric = PHOTOMETRIC_MINISWHITE;
  bits.bits = 1;
  EXPECT_THAT(first(std::string(8, 77), gray), ElementsAre(77, 77, 77));
  EXPECT_THAT(first(std::string(16, 77), deep), ElementsAre(77, 77, 77));
  EXPECT_THAT(first(std::string(8, 77), inverted), ElementsAre(178, 178, 178));
  EXPECT_THAT(first("\x80", bits), ElementsAre(255, 255, 255));
  EXPECT_THAT(first(with_fourth(std::string(24, 55), '\0'), inks), ElementsAre(200, 200, 200));
  TiffKind palette{.photometric = PHOTOMETRIC_PALETTE, .channels = 1, .palette = std::vector<uint16_t>(3 * 256)};
  for (const size_t c : {0u, 1u, 2u}) palette.palette[256 * c + 5] = static_cast<uint16_t>(257 * (10 + 10 * c));
  EXPECT_THAT(first(std::string(8, 5), palette), ElementsAre(10, 20, 30));
}

TEST(TiffPhoto, OfATiffTheFirstPageIsTaken) {
  const std::string first = samples_of(four_colours());
  expect_four_colours(written_tiff(48, 64, {first, std::string(first.size(), 9)}, {}));
}

TEST(TiffPhoto, TiffOfUnknownKindsAreRefusedInTheirLibrarysWords) {
  const std::string floats(4 * 4 * 3 * 4, '\0');
  EXPECT_THAT(reason(written_tiff(4, 4, {floats}, {.bits = 32, .format = SAMPLEFORMAT_IEEEFP})),
              AllOf(HasSubstr("TIFF of a kind that is not supported"), HasSubstr("32-bit samples")));
}

TEST(TiffPhoto, ATiffWhosePixelsLieBeyondItsEndIsDamaged) {
  std::string file = made_tiff(48, 64, samples_of(four_colours()), 1, 0);
  const size_t strip = file.find(little_endian(273, 2) + little_endian(4, 2));  // the entry with the strip's offset
  ASSERT_NE(strip, std::string::npos);
  file.replace(strip + 8, 4, little_endian(static_cast<uint32_t>(file.size() - 100)));
  EXPECT_THAT(reason(file), AllOf(HasSubstr("damaged TIFF"), HasSubstr("Read error")));
}

TEST(TiffPhoto, ATiffWithATileLargerThanTheLimitIsRefused) {
  std::string file = written_tiff(four_colours(), {.tile = 32});
  const size_t tile = file.find(little_endian(322, 2));
  ASSERT_NE(tile, std::string::npos);
  file.replace(tile + 8, 4, little_endian(1 << 16));
  file.replace(tile + 12 + 8, 4, little_endian(1 << 16));
  EXPECT_THAT(reason(file), HasSubstr("TIFF"));
  EXPECT_NE(reason(file), "");
}

TEST(TiffPhoto, ADeflatedTiffWithOneWrongBitIsDamaged) {
  const std::string whole = written_tiff(four_colours(), {.compression = COMPRESSION_ADOBE_DEFLATE});
  expect_four_colours(whole);
  const size_t strip = whole.find("\x78");  // zlib's first byte, just after the header
  ASSERT_LT(strip, 16u);
  for (const size_t at : {strip, strip + 5, strip + 40}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 16);
    EXPECT_THAT(reason(damaged), HasSubstr("damaged TIFF")) << at;
  }
}

TEST(TiffPhoto, TheOrientationOfATiffIsApplied) {
  const std::vector<std::string> upright{"ABCD", "BADC", "DCBA", "CDAB", "ACBD", "CADB", "DBCA", "BDAC"};
  const std::vector<uint8_t> pixels = four_colours().pixels;
  for (int orientation = 1; orientation <= 8; ++orientation)
    EXPECT_EQ(layout(read_photo(made_tiff(48, 64, {pixels.begin(), pixels.end()}, orientation, 0))),
              upright[static_cast<size_t>(orientation - 1)])
        << orientation;
}

TEST(TiffPhoto, TheAlphaOfATiffIsOverWhiteWhetherColoursAreMultipliedOrNot) {
  constexpr int kMultiplied = 1, kPlain = 2;
  const std::string plain("\x64\0\0\x33", 4), multiplied("\x14\0\0\x33", 4);  // 100, 0, 0 at a fifth
  for (const std::string& file :
       {made_tiff(1, 1, plain, 1, kPlain), made_tiff(1, 1, multiplied, 1, kMultiplied),
        made_tiff(1, 1, deepened(plain), 1, kPlain, true), made_tiff(1, 1, deepened(multiplied), 1, kMultiplied, true)})
    EXPECT_THAT(pixel(read_photo(file), 0, 0), ElementsAre(224, 204, 204));
}

// libtiff allocates whole tiles and strips, however little of them the image uses.
TEST(TiffPhoto, APartLargerThanTheLimitForPixelsIsRefused) {
  const Photo photo = quadrants(48, 64, kFourColours);
  const PhotoLimits limits{.pixels = 48 * 64};
  EXPECT_EQ(read_photo(written_tiff(photo, {.tile = 64}), limits).pixels, photo.pixels);
  EXPECT_THAT(reason(written_tiff(photo, {.tile = 128}), limits), HasSubstr("parts of 49152 bytes"));
}

TEST(TiffPhoto, APartMuchLargerThanTheImageIsRefused) {
  const Photo photo = quadrants(48, 64, kFourColours);
  EXPECT_EQ(read_photo(written_tiff(photo, {.tile = 2048})).pixels, photo.pixels);
  EXPECT_THAT(reason(written_tiff(photo, {.tile = 4096})), HasSubstr("parts of 50331648 bytes"));
}

}  // namespace
}  // namespace owt::photo_tiff_test

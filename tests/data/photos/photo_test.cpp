#include "data/photos/photo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "src/system/files.h"
#include "tests/data/photos/read_photos.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::photo_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Photo, JpegOfEveryColourSpaceIsReadAsRgb) {
  expect_four_colours(made_jpeg(four_colours()));
  expect_four_colours(made_jpeg(four_colours(), true));
  expect_four_colours(made_jpeg(48, 64, 3, four_colours().pixels, {JCS_RGB, JCS_RGB}));
  const Photo gray = read_photo(gray_jpeg(20, 30, 90));
  EXPECT_EQ(gray.height, 20);
  EXPECT_THAT(pixel(gray, 10, 10), ElementsAre(90, 90, 90));
}

TEST(Photo, InksAreReadAsRgbWhetherInvertedOrNot) {
  expect_four_colours(cmyk_jpeg(four_colours(), JCS_CMYK, true));
  expect_four_colours(cmyk_jpeg(four_colours(), JCS_YCCK, true));
  expect_four_colours(cmyk_jpeg(four_colours(), JCS_CMYK, false));
}

TEST(Photo, BlackInkDarkensTheOthers) {
  std::vector<uint8_t> inks;  // Adobe's: 255 is none
  for (int i = 0; i < 64; ++i) inks.insert(inks.end(), {200, 100, 255, 128});
  const std::string file = made_jpeg(8, 8, 4, inks, {JCS_CMYK, JCS_CMYK, true});
  EXPECT_THAT(pixel(read_photo(file), 4, 4), ElementsAre(100, 50, 128));
}

TEST(Photo, ExifOrientationIsApplied) {
  const std::vector<std::string> upright{"ABCD", "BADC", "DCBA", "CDAB", "ACBD", "CADB", "DBCA", "BDAC"};
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool little : {true, false}) {
      const Photo photo = read_photo(with_exif(made_jpeg(four_colours()), exif(orientation, little)));
      EXPECT_EQ(layout(photo), upright[static_cast<size_t>(orientation - 1)]) << orientation;
      EXPECT_EQ(photo.width, orientation <= 4 ? 64 : 48);
      EXPECT_EQ(photo.height, orientation <= 4 ? 48 : 64);
    }
}

TEST(Photo, ThinImagesAreNotEnlargedBeyondWhatAJpegHolds) {
  const Photo thin{1, 656, std::vector<uint8_t>(656 * 3, 9)};
  EXPECT_EQ(resized(thin, 99).width, 64944);
  EXPECT_THAT(message_of<BadPhoto>([&] { resized(thin, 100); }), HasSubstr("656 x 1 pixels, too thin"));
}

TEST(Photo, ExifDataThatMakeNoSenseTurnNothing) {
  const std::string plain = made_jpeg(four_colours());
  for (const std::string& data : {std::string(), std::string("II"), exif(0, true), exif(9, true), std::string(40, 'x'),
                                  exif(6, true).substr(0, 15), "II*" + std::string(30, '\xff')})
    expect_four_colours(with_exif(plain, data));
}

TEST(Photo, PngIsReadOfEveryKind) {
  const std::string samples = samples_of(four_colours());
  for (const bool interlaced : {false, true}) {
    expect_four_colours(written_png(48, 64, samples, {.interlaced = interlaced}));
    expect_four_colours(written_png(48, 64, deepened(samples), {.depth = 16, .interlaced = interlaced}));
    expect_four_colours(
        written_png(48, 64, with_fourth(samples, '\xff'), {.colour = PNG_COLOR_TYPE_RGBA, .interlaced = interlaced}));
  }
  const std::string gray(9 * 7, 77);
  for (const std::string& file :
       {written_png(9, 7, gray, {.colour = PNG_COLOR_TYPE_GRAY}),
        written_png(9, 7, deepened(gray), {.depth = 16, .colour = PNG_COLOR_TYPE_GRAY, .interlaced = true})})
    EXPECT_THAT(read_photo(file).pixels, testing::Each(77));
  // One bit per pixel, from left to right: white, black.
  const Photo bits = read_photo(made_png(2, 1, 1, 0, "", std::string("\0\x80", 2)));
  EXPECT_THAT(pixel(bits, 0, 0), ElementsAre(255, 255, 255));
  EXPECT_THAT(pixel(bits, 0, 1), ElementsAre(0, 0, 0));
}

TEST(Photo, SixteenBitsAreRoundedToTheNearestOfEight) {
  const std::string samples = big_endian(100 * 257 + 128, 2) + big_endian(100 * 257 + 129, 2) + big_endian(65535, 2);
  EXPECT_THAT(pixel(read_photo(written_png(1, 1, samples, {.depth = 16})), 0, 0), ElementsAre(100, 101, 255));
}

TEST(Photo, AColourOfAPngThatMeansTransparentIsWhite) {
  const std::string key = png_chunk("tRNS", big_endian(100, 2) + big_endian(50, 2) + big_endian(25, 2));
  const std::string row("\0\x64\x32\x19\x64\x32\x1a", 7);
  const Photo photo = read_photo(made_png(2, 1, 8, 2, key, row));
  EXPECT_THAT(pixel(photo, 0, 0), ElementsAre(255, 255, 255));
  EXPECT_THAT(pixel(photo, 0, 1), ElementsAre(100, 50, 26));
  std::string damaged = made_png(2, 1, 8, 2, key, row);
  damaged[damaged.find("tRNS") + 5] ^= 1;
  EXPECT_THAT(reason(damaged), HasSubstr("damaged PNG: tRNS: CRC error"));
}

TEST(Photo, PalettesAreLookedUp) {
  const std::string palette = png_chunk("PLTE", std::string("\x0a\x14\x1e\xc8\x64\x32", 6));
  const std::string row("\0\0\1", 3);
  const Photo photo = read_photo(made_png(2, 1, 8, 3, palette, row));
  EXPECT_THAT(pixel(photo, 0, 0), ElementsAre(10, 20, 30));
  EXPECT_THAT(pixel(photo, 0, 1), ElementsAre(200, 100, 50));
  const Photo clear = read_photo(made_png(2, 1, 8, 3, palette + png_chunk("tRNS", std::string("\0\xff", 2)), row));
  EXPECT_THAT(pixel(clear, 0, 0), ElementsAre(255, 255, 255));
  EXPECT_THAT(pixel(clear, 0, 1), ElementsAre(200, 100, 50));
}

TEST(Photo, TransparencyIsOverWhite) {
  // 10, 20, 30 once whole, once not to be seen; 100, 0, 0 at a fifth: 0.2 x 100 + 0.8 x 255 = 224
  const std::string samples("\x0a\x14\x1e\xff\x0a\x14\x1e\x00\x64\x00\x00\x33", 12);
  for (const std::string& file : {written_png(1, 3, samples, {.colour = PNG_COLOR_TYPE_RGBA}),
                                  written_png(1, 3, deepened(samples), {.depth = 16, .colour = PNG_COLOR_TYPE_RGBA}),
                                  written_webp(1, 3, samples)}) {
    const Photo photo = read_photo(file);
    EXPECT_THAT(pixel(photo, 0, 0), ElementsAre(10, 20, 30));
    EXPECT_THAT(pixel(photo, 0, 1), ElementsAre(255, 255, 255));
    EXPECT_THAT(pixel(photo, 0, 2), ElementsAre(224, 204, 204));
  }
  // Gray with alpha.
  const Photo gray = read_photo(made_png(2, 1, 8, 4, "", std::string("\0\x64\xff\x64\x33", 5)));
  EXPECT_THAT(pixel(gray, 0, 0), ElementsAre(100, 100, 100));
  EXPECT_THAT(pixel(gray, 0, 1), ElementsAre(224, 224, 224));
}

TEST(Photo, OtherPartsOfAPngAreNotInterpreted) {
  const std::string row("\0\x64\x64\x64", 4);
  for (const std::string& extra :
       {png_chunk("iCCP", "profile"), png_chunk("zTXt", std::string("bomb\0\0", 6) + std::string(100, '\xff')),
        png_chunk("gAMA", big_endian(1)),
        png_chunk("acTL", big_endian(2) + big_endian(0)) + png_chunk("fcTL", std::string(26, '\0'))})
    EXPECT_THAT(pixel(read_photo(made_png(1, 1, 8, 2, extra, row)), 0, 0), ElementsAre(100, 100, 100));
  const Photo turned =
      read_photo(made_png(2, 1, 8, 2, png_chunk("eXIf", exif(6, false)), std::string("\0\x64\x64\x64\x32\x32\x32", 7)));
  EXPECT_EQ(turned.height, 2);
  EXPECT_THAT(pixel(turned, 1, 0), ElementsAre(50, 50, 50));
}

TEST(Photo, TheChunksAfterThePictureOfAPngAreReadToo) {
  const std::string rows("\0\x64\x64\x64\x32\x32\x32", 7);
  const std::string plain = made_png(2, 1, 8, 2, "", rows), behind = png_chunk("eXIf", exif(6, false));
  const size_t end = plain.size() - png_chunk("IEND", "").size();
  EXPECT_EQ(read_photo(plain.substr(0, end) + behind + plain.substr(end)).height, 2);
  EXPECT_EQ(reason(plain.substr(0, end)), "truncated PNG");
}

TEST(Photo, WebpIsReadLosslessOrNotAndTurned) {
  expect_four_colours(written_webp(four_colours()));
  expect_four_colours(lossy_webp(four_colours(), 95));
  const std::string still = written_webp(four_colours());
  const std::string canvas = little_endian(63, 3) + little_endian(47, 3);
  for (const auto& [orientation, expected] : {std::pair(3, "DCBA"), std::pair(6, "CADB")})
    EXPECT_EQ(layout(read_photo(riff("RIFF", "WEBP" + riff("VP8X", std::string("\x08\0\0\0", 4) + canvas) +
                                                 still.substr(12) + riff("EXIF", exif(orientation, true))))),
              expected);
}

// The words of the libraries are in the reasons.
TEST(Photo, DamagedFilesPrintNothing) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  for (const std::string& file :
       {written_png(four_colours()), made_bmp(four_colours()), written_webp(four_colours()),
        written_tiff(four_colours()), written_tiff(four_colours(), {.compression = COMPRESSION_LZW}),
        written_tiff(four_colours(), {.compression = COMPRESSION_JPEG, .photometric = PHOTOMETRIC_YCBCR})})
    for (size_t at = 4; at < file.size(); at += 7) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
      reason(damaged);
    }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Photo, OfAnAnimationTheFirstFrameIsTaken) {
  expect_four_colours(animated_webp(48, 64, four_colours(), 0, 0));
  const Photo part = read_photo(animated_webp(60, 80, four_colours(), 10, 6));  // the remaining canvas is empty
  EXPECT_EQ(part.height, 60);
  EXPECT_EQ(part.width, 80);
  EXPECT_THAT(pixel(part, 5, 20), ElementsAre(255, 255, 255));
  EXPECT_THAT(pixel(part, 6, 10), ElementsAre(200, 50, 50));
  EXPECT_THAT(reason(animated_webp(48, 64, four_colours(), 2, 0)), HasSubstr("damaged WebP"));
}

TEST(Photo, WhatIsNoImageIsNamed) {
  EXPECT_EQ(reason(""), "empty file");
  EXPECT_THAT(reason("Dear colleagues, the photo follows."), HasSubstr("no image"));
  EXPECT_THAT(reason("GIF89a" + std::string(100, 'x')), HasSubstr("GIF"));
  EXPECT_THAT(reason(std::string("\0\0\0\x18"
                                 "ftypheic",
                                 12)),
              HasSubstr("HEIC"));
  EXPECT_THAT(reason("BM"), HasSubstr("truncated BMP"));
  EXPECT_THAT(reason("\xff\xd8\xff"), HasSubstr("JPEG"));
  EXPECT_THAT(reason("<svg xmlns=\"http://www.w3.org/2000/svg\"/>"), HasSubstr("no image"));
}

// A picture in which every part differs from the values that a decoder fills in.
Photo noisy() {
  Photo photo{64, 96, {}};
  uint32_t state = 1;
  for (int i = 0; i < 64 * 96 * 3; ++i)
    photo.pixels.push_back(static_cast<uint8_t>((state = state * 1664525 + 1) >> 24));
  return photo;
}

std::vector<std::pair<std::string, std::string>> files_of_every_format() {
  return {{"JPEG", jpeg_of(noisy(), {})},
          {"progressive JPEG", made_jpeg(noisy(), true)},
          {"arithmetic JPEG", arithmetic_jpeg(noisy())},
          {"progressive arithmetic JPEG", arithmetic_jpeg(noisy(), true)},
          {"PNG", written_png(noisy())},
          {"BMP", made_bmp(noisy())},
          {"TIFF", written_tiff(noisy())},
          {"TIFF with its directory in front", made_tiff(64, 96, samples_of(noisy()), 1, 0)},
          {"WebP", written_webp(noisy())},
          {"lossy WebP", lossy_webp(noisy(), 80)},
          {"animated WebP", animated_webp(64, 96, noisy(), 0, 0)}};
}

TEST(Photo, AFileCutShortIsRefusedOrWhole) {
  for (const auto& [name, file] : files_of_every_format()) {
    const std::vector<uint8_t> whole = read_photo(file).pixels;
    std::vector<size_t> cuts;
    for (size_t bytes = 0; bytes < file.size(); bytes += bytes < 200 ? 1 : 97) cuts.push_back(bytes);
    for (size_t missing = 1; missing < std::min<size_t>(file.size(), 40); ++missing)
      cuts.push_back(file.size() - missing);
    for (const size_t bytes : cuts) {
      const std::string cut = file.substr(0, bytes);
      if (reason(cut).empty()) {
        EXPECT_EQ(read_photo(cut).pixels, whole) << name << " cut to " << bytes << " bytes";
      }
    }
    EXPECT_NE(reason(file.substr(0, file.size() / 2)), "") << name;
  }
}

TEST(Photo, ATruncatedJpegIsCalledThat) {
  const std::string file = jpeg_of(noisy(), {});
  EXPECT_EQ(reason(file.substr(0, file.size() / 2)), "truncated JPEG");
  EXPECT_EQ(reason(made_jpeg(noisy(), true).substr(0, 4000)), "truncated JPEG");
  EXPECT_EQ(reason(arithmetic_jpeg(noisy()).substr(0, 4000)), "truncated JPEG");
}

// A decoder of arithmetic codes continues with zeros if the codes end too early.
TEST(Photo, ATruncatedArithmeticJpegWithAnEndMarkerIsRefused) {
  for (const bool progressive : {false, true}) {
    const std::string file = arithmetic_jpeg(noisy(), progressive);
    for (const size_t missing : {file.size() / 50, file.size() / 10, file.size() / 2})
      EXPECT_EQ(reason(file.substr(0, file.size() - missing) + "\xff\xd9"), "truncated JPEG") << missing;
    EXPECT_EQ(read_photo(file.substr(0, file.size() - 2) + "\xff\xff\xff\xd9").pixels, read_photo(file).pixels);
  }
}

TEST(Photo, AnArithmeticJpegOfOneColourIsWhole) {
  for (const bool progressive : {false, true}) {
    const std::string file =
        arithmetic_jpeg(quadrants(1200, 1600, {0xffffff, 0xffffff, 0xffffff, 0x808080}), progressive);
    EXPECT_LT(file.size(), 2000u);
    EXPECT_EQ(reason(file), "");
  }
}

// With the height and width of a header changed.
std::string claiming(std::string jpeg, int64_t height, int64_t width) {
  const bool progressive = jpeg.find("\xff\xca") != std::string::npos;
  const size_t frame = jpeg.find(progressive ? "\xff\xca" : "\xff\xc9");
  return jpeg.replace(frame + 5, 4, big_endian(static_cast<uint32_t>(height << 16 | width), 4));
}

TEST(Photo, AnArithmeticJpegCannotClaimGigabytes) {
  const std::string file = arithmetic_jpeg(noisy());
  EXPECT_EQ(reason(claiming(file, 64, 96)), "");
  EXPECT_EQ(reason(claiming(file.substr(0, 2000), 16384, 16384)), "truncated JPEG");
}

TEST(Photo, TheScansOfAJpegHaveALimitThatFallsWithItsPixels) {
  EXPECT_EQ(most_scans(100, 100), 500);
  EXPECT_EQ(most_scans(1 << 14, 1 << 14), 16);
}

TEST(Photo, AnArithmeticJpegWithACodeThatCannotBeIsDamaged) {
  std::string file = arithmetic_jpeg(noisy());
  file.replace(file.size() / 2, 30, 30, '\0');
  EXPECT_EQ(reason(file), "damaged JPEG: Corrupt JPEG data: bad arithmetic code");
}

TEST(Photo, AJpegThatOnlyLacksItsEndMarkerIsWhole) {
  const std::string file = jpeg_of(noisy(), {});
  EXPECT_EQ(read_photo(file.substr(0, file.size() - 2)).pixels, read_photo(file).pixels);
}

TEST(Photo, FlippedBitsGiveAReasonOrAPhotoOfTheLimits) {
  const PhotoLimits limits{.pixels = 1 << 20};
  for (const auto& [name, file] : files_of_every_format()) {
    uint32_t state = 7;
    for (int trial = 0; trial < 150; ++trial) {
      std::string bad = file;
      state = state * 1664525 + 1013904223;
      const size_t among = trial % 2 == 0 ? std::min<size_t>(bad.size(), 120) : bad.size();  // the header, or anywhere
      const size_t bit = (state >> 4) % (among * 8);
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      try {
        const Photo photo = read_photo(bad, limits);
        EXPECT_LE(photo.height * photo.width, limits.pixels) << name;
        EXPECT_EQ(static_cast<int64_t>(photo.pixels.size()), photo.height * photo.width * 3) << name;
      } catch (const BadPhoto&) {
      }
    }
  }
}

TEST(Photo, HugeClaimsAreRefusedBeforeDecoding) {
  const std::string png = made_png(200000, 200000, 8, 2, "", "");
  EXPECT_THAT(reason(png), HasSubstr("200000 x 200000 pixels, more than 268435456"));
  std::string jpeg = gray_jpeg(16, 16, 1);
  const size_t frame = jpeg.find("\xff\xc0");
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_THAT(reason(jpeg), HasSubstr("65500 x 65500 pixels"));
  std::string bmp = made_bmp(four_colours());
  bmp.replace(18, 8, little_endian(100000) + little_endian(static_cast<uint32_t>(-100000)));
  EXPECT_THAT(reason(bmp), HasSubstr("100000 x 100000 pixels"));
  EXPECT_THAT(reason(animated_webp(40000, 60000, four_colours(), 0, 0)), HasSubstr("60000 x 40000 pixels"));
  EXPECT_THAT(reason(made_tiff(80000, 70000, "", 1, 0)), HasSubstr("70000 x 80000 pixels"));
  EXPECT_THAT(reason(made_png(2000000, 1, 8, 0, "", "")), HasSubstr("on a side"));
  EXPECT_THAT(reason(made_jpeg(four_colours()), {.pixels = 48 * 64 - 1}), HasSubstr("64 x 48 pixels, more than 3071"));
  EXPECT_EQ(reason(made_jpeg(four_colours()), {.pixels = 48 * 64}), "");
}

TEST(Photo, AJpegWithRubbishBetweenItsPartsIsRead) {
  std::string file = made_jpeg(four_colours());
  file.insert(file.find("\xff\xda"), "rubbish");
  expect_four_colours(file + "more rubbish");
}

TEST(Photo, TenThousandPixelsSquaredAreRead) {
  const std::string file = gray_jpeg(10000, 10000, 60);
  const Photo photo = resized(read_photo(file, {.short_side = 256}), 256);
  EXPECT_EQ(photo.width, 256);
  EXPECT_THAT(pixel(photo, 128, 128), ElementsAre(60, 60, 60));
}

// The last scan of a progressive file, over and over again: cheap to write, costly to decode.
TEST(Photo, AProgressiveJpegOfThousandsOfScansIsRefused) {
  const std::string file = made_jpeg(four_colours(), true);
  const size_t last = file.rfind("\xff\xda"), end = file.rfind("\xff\xd9");
  std::string scans = file.substr(0, end);
  for (int i = 0; i < 600; ++i) scans += file.substr(last, end - last);
  EXPECT_THAT(reason(scans + file.substr(end)), HasSubstr("JPEG"));
  EXPECT_NE(reason(scans + file.substr(end)), "");
}

TEST(Photo, ALargeJpegIsDecodedAtAFractionThatIsTwiceWhatIsWanted) {
  const std::string file = made_jpeg(quadrants(800, 2100, kFourColours));
  const auto size = [&](int64_t short_side) {
    const Photo photo = read_photo(file, {.short_side = short_side});
    EXPECT_EQ(layout(photo), "ABCD");
    return std::pair(photo.height, photo.width);
  };
  EXPECT_EQ(size(0), std::pair(int64_t{800}, int64_t{2100}));
  EXPECT_EQ(size(201), std::pair(int64_t{800}, int64_t{2100}));
  EXPECT_EQ(size(200), std::pair(int64_t{400}, int64_t{1050}));
  EXPECT_EQ(size(100), std::pair(int64_t{200}, int64_t{525}));
  EXPECT_EQ(size(10), std::pair(int64_t{100}, int64_t{263}));
}

TEST(Photo, ResizingKeepsProportionsAndRoundsTheLongSide) {
  const auto size = [](int64_t height, int64_t width, int64_t short_side) {
    const Photo photo = resized(quadrants(height, width, kFourColours), short_side);
    EXPECT_EQ(layout(photo), "ABCD");
    EXPECT_EQ(static_cast<int64_t>(photo.pixels.size()), photo.height * photo.width * 3);
    return std::pair(photo.height, photo.width);
  };
  EXPECT_EQ(size(375, 500, 256), std::pair(int64_t{256}, int64_t{341}));
  EXPECT_EQ(size(500, 333, 256), std::pair(int64_t{384}, int64_t{256}));
  EXPECT_EQ(size(68, 121, 256), std::pair(int64_t{456 - 200}, int64_t{456}));
  EXPECT_EQ(size(256, 300, 256), std::pair(int64_t{256}, int64_t{300}));
}

TEST(Photo, ShrinkingAveragesAreas) {
  Photo board{16, 16, {}};
  for (int i = 0; i < 256; ++i) board.pixels.insert(board.pixels.end(), 3, (i / 16 + i) % 2 == 0 ? 0 : 200);
  const Photo shrunk = resized(board, 4);
  EXPECT_THAT(shrunk.pixels, testing::Each(100));
}

TEST(Photo, WhatIsTooThinToEnlargeIsRefused) {
  EXPECT_THROW(resized(Photo{1, 60000, std::vector<uint8_t>(180000)}, 256), BadPhoto);
  EXPECT_THROW(jpeg_of(Photo{1, 70000, std::vector<uint8_t>(210000)}, {}), BadPhoto);
}

int restart_markers(const std::string& jpeg) {
  int count = 0;
  for (size_t i = 0; i + 1 < jpeg.size(); ++i)
    if (jpeg[i] == '\xff' && (static_cast<uint8_t>(jpeg[i + 1]) & 0xf8) == 0xd0) ++count;
  return count;
}

TEST(Photo, WrittenJpegsHaveHalvedColourAndRestartMarkers) {
  const Photo photo = quadrants(100, 70, kFourColours);  // 7 rows of 5 blocks
  const std::string by_rows = jpeg_of(photo, {});
  EXPECT_EQ(restart_markers(by_rows), 6);
  EXPECT_EQ(restart_markers(jpeg_of(photo, {.restart_in_rows = 2})), 3);
  EXPECT_EQ(restart_markers(jpeg_of(photo, {.restart_in_rows = 0})), 0);
  EXPECT_EQ(restart_markers(jpeg_of(photo, {.restart_in_rows = 0, .restart_interval = 4})), 8);  // 35 blocks
  const size_t frame = by_rows.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos) << "baseline";
  EXPECT_EQ(by_rows[frame + 11], 0x22);  // sampling factors of luma: twice the samples in each direction
  EXPECT_EQ(by_rows[frame + 14], 0x11);
  EXPECT_EQ(by_rows, jpeg_of(photo, {}));
  EXPECT_LT(jpeg_of(noisy(), {.quality = 50}).size(), jpeg_of(noisy(), {.quality = 90}).size());
  EXPECT_EQ(layout(read_photo(by_rows)), "ABCD");
}

TEST(Photo, PngsComeBackAsTheyWereWritten) {
  const TempFolder folder;
  write_png(folder.file("x.png"), noisy());
  const Photo back = read_photo(read_file(folder.file("x.png")));
  EXPECT_EQ(back.pixels, noisy().pixels);
  EXPECT_EQ(back.height, 64);
}

}  // namespace
}  // namespace owt::photo_test

#include "data/jpeg/jpeg_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include <jpeglib.h>

#include "data/jpeg/bad_photo.h"
#include "tests/support/message_of.h"
#include "tests/support/shards.h"

namespace owt::jpeg_window_test {
namespace {

using testing::HasSubstr;

struct Kind {
  std::string name{};
  int64_t height = 83, width = 101;
  int across = 2, down = 2;  // luma samples for each of chroma
  int interval = 0, rows = 0;
  int quality = 90;
  bool gray = false, progressive = false, optimized = false, adobe = false;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

std::string encode(const Kind& kind) {
  Photo photo = made_photo(7, kind.height, kind.width);
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* file = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &file, &bytes);
  jpeg.image_width = static_cast<JDIMENSION>(kind.width);
  jpeg.image_height = static_cast<JDIMENSION>(kind.height);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (kind.gray) jpeg_set_colorspace(&jpeg, JCS_GRAYSCALE);
  jpeg.write_Adobe_marker = kind.adobe;
  jpeg_set_quality(&jpeg, kind.quality, TRUE);
  jpeg.comp_info[0].h_samp_factor = kind.across;
  jpeg.comp_info[0].v_samp_factor = kind.down;
  jpeg.restart_interval = static_cast<unsigned>(kind.interval);
  jpeg.restart_in_rows = kind.rows;
  jpeg.optimize_coding = kind.optimized;
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = photo.pixels.data() + size_t{jpeg.next_scanline} * static_cast<size_t>(kind.width * 3);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string result(reinterpret_cast<char*>(file), bytes);
  std::free(file);
  return result;
}

// The whole image by libjpeg, in colour or in grey.
std::vector<uint8_t> whole(const std::string& file, int channels = 3) {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg.do_fancy_upsampling = FALSE;
  jpeg.do_block_smoothing = FALSE;
  jpeg_start_decompress(&jpeg);
  std::vector<uint8_t> pixels(size_t{jpeg.output_height} * jpeg.output_width * static_cast<size_t>(channels));
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels.data() + size_t{jpeg.output_scanline} * jpeg.output_width * static_cast<size_t>(channels);
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_destroy_decompress(&jpeg);
  return pixels;
}

std::vector<uint8_t> cut(const std::vector<uint8_t>& pixels, int64_t width, const ImageWindow& window, int channels) {
  std::vector<uint8_t> out;
  for (int64_t y = window.top; y < window.top + window.height; ++y) {
    const auto begin = pixels.begin() + (y * width + window.left) * channels;
    out.insert(out.end(), begin, begin + window.width * channels);
  }
  return out;
}

std::vector<uint8_t> decode(WindowDecoder& decoder, const std::string& file, const ImageWindow& window,
                            int channels = 3) {
  std::vector<uint8_t> pixels(static_cast<size_t>(window.height * window.width * channels));
  decoder.open(file);
  decoder.decode(window, channels, pixels.data());
  return pixels;
}

class JpegWindowTest : public testing::TestWithParam<Kind> {};

TEST_P(JpegWindowTest, EveryWindowIsThatOfTheWholeImage) {
  const Kind kind = GetParam();
  const std::string file = encode(kind);
  const std::vector<uint8_t> all = whole(file), grey = whole(file, 1);
  WindowDecoder decoder;
  decoder.open(file);
  ASSERT_EQ(decoder.height(), kind.height);
  ASSERT_EQ(decoder.width(), kind.width);
  EXPECT_EQ(decode(decoder, file, {0, 0, kind.height, kind.width}), all);
  EXPECT_EQ(decode(decoder, file, {0, 0, kind.height, kind.width}, 1), grey);
  std::mt19937 random(1);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  for (int i = 0; i < 200; ++i) {  // all phases of the blocks of 8 and 16
    ImageWindow window{.height = 1 + below(kind.height), .width = 1 + below(kind.width)};
    if (i % 2 == 0) window.height = 1 + below(std::min<int64_t>(20, kind.height));
    if (i % 3 == 0) window.width = 1 + below(std::min<int64_t>(20, kind.width));
    window.top = below(kind.height - window.height + 1);
    window.left = below(kind.width - window.width + 1);
    for (const int channels : {3, 1})
      ASSERT_EQ(decode(decoder, file, window, channels), cut(channels == 1 ? grey : all, kind.width, window, channels))
          << window.height << " x " << window.width << " at " << window.top << ", " << window.left;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jpeg, JpegWindowTest,
    testing::Values(
        Kind{.name = "plain"}, Kind{.name = "row_of_units", .rows = 1}, Kind{.name = "two_rows", .rows = 2},
        Kind{.name = "every_unit", .interval = 1}, Kind{.name = "three_units", .interval = 3},
        Kind{.name = "five_units", .interval = 5}, Kind{.name = "more_than_a_row", .interval = 11},
        Kind{.name = "full_chroma", .across = 1, .down = 1, .rows = 1},
        Kind{.name = "half_width", .down = 1, .interval = 4}, Kind{.name = "half_height", .across = 1, .interval = 4},
        Kind{.name = "gray", .across = 1, .down = 1, .gray = true},
        Kind{.name = "gray_restarts", .across = 1, .down = 1, .interval = 4, .gray = true},
        Kind{.name = "gray_sampled_twice", .rows = 1, .gray = true}, Kind{.name = "best", .rows = 1, .quality = 100},
        Kind{.name = "coarse", .rows = 1, .quality = 5}, Kind{.name = "own_tables", .interval = 2, .optimized = true},
        Kind{.name = "one_pixel", .height = 1, .width = 1}, Kind{.name = "narrow", .height = 90, .width = 3},
        Kind{.name = "low", .height = 2, .width = 300, .interval = 1},
        Kind{.name = "whole_units", .height = 64, .width = 96, .rows = 1},
        Kind{.name = "wide", .height = 40, .width = 700, .rows = 1}, Kind{.name = "progressive", .progressive = true},
        Kind{.name = "adobe", .adobe = true},
        Kind{.name = "gray_progressive", .across = 1, .down = 1, .gray = true, .progressive = true}),
    [](const auto& instance) { return instance.param.name; });

TEST(JpegWindow, FilesOfOtherTablesAndSizesFollowEachOther) {
  WindowDecoder decoder;
  for (int round = 0; round < 2; ++round)
    for (const Kind& kind :
         {Kind{}, Kind{.height = 30, .width = 200, .optimized = true}, Kind{.gray = true}, Kind{.progressive = true},
          Kind{.height = 200, .width = 30, .across = 1, .down = 1, .interval = 2, .quality = 30}}) {
      const std::string file = encode(kind);
      EXPECT_EQ(decode(decoder, file, {0, 0, kind.height, kind.width}), whole(file));
    }
}

TEST(JpegWindow, DataAfterTheWindowAreNotRead) {
  const Kind kind{.rows = 1};
  std::string file = encode(kind);
  const ImageWindow top{0, 0, 16, kind.width};
  WindowDecoder decoder;
  const std::vector<uint8_t> pixels = decode(decoder, file, top);
  const size_t second = file.find("\xFF\xD1");  // the marker after the second row
  ASSERT_NE(second, std::string::npos);
  file.resize(second);
  EXPECT_EQ(decode(decoder, file, top), pixels);
}

std::string error_of(const std::string& file, const ImageWindow& window) {
  WindowDecoder decoder;
  return message_of<BadPhoto>([&] { decode(decoder, file, window); });
}

TEST(JpegWindow, EveryTruncationIsFound) {
  for (const Kind& kind : {Kind{.height = 40, .width = 40}, Kind{.height = 40, .width = 40, .interval = 2},
                           Kind{.height = 40, .width = 40, .progressive = true}}) {
    const std::string file = encode(kind);
    for (size_t bytes = 0; bytes + 2 < file.size(); bytes += 3)
      EXPECT_THAT(error_of(file.substr(0, bytes), {0, 0, 40, 40}), HasSubstr("damaged JPEG")) << bytes << " bytes";
  }
}

// The file with another height and width in its frame header.
std::string claiming(std::string file, int height, int width) {
  const size_t frame = std::min(file.find("\xFF\xC0"), file.find("\xFF\xC2"));
  for (const int shift : {0, 8}) {
    file[frame + 6 - static_cast<size_t>(shift / 8)] = static_cast<char>(height >> shift);
    file[frame + 8 - static_cast<size_t>(shift / 8)] = static_cast<char>(width >> shift);
  }
  return file;
}

TEST(JpegWindow, PixelsThatOnlyTheHeaderSpeaksOfAreRefusedBeforeMemoryIsTaken) {
  for (const Kind& kind : {Kind{}, Kind{.across = 1, .down = 1, .gray = true}, Kind{.progressive = true}}) {
    const std::string file = encode(kind);
    WindowDecoder decoder;
    const auto opening = [&](int height, int width) {
      return [&decoder, bad = claiming(file, height, width)] { decoder.open(bad); };
    };
    EXPECT_NO_THROW(opening(83, 101)());
    EXPECT_THAT(message_of<BadPhoto>(opening(65500, 65500)), HasSubstr("65500 x 65500 pixels, more than 2^28"));
    EXPECT_THAT(message_of<BadPhoto>(opening(16384, 16384)), HasSubstr("cannot hold 16384 x 16384 pixels"));
  }
}

TEST(JpegWindow, TheEmptiestImageIsNotTakenForTruncated) {
  std::vector<uint8_t> gray(size_t{2048} * 2048 * 3, 128);
  const std::string file =
      jpeg_of({.height = 2048, .width = 2048, .pixels = gray}, {.quality = 1, .restart_in_rows = 0});
  WindowDecoder decoder;
  std::vector<uint8_t> pixels(3);
  decoder.open(file);
  decoder.decode({2047, 2047, 1, 1}, 3, pixels.data());
  EXPECT_THAT(pixels, testing::ElementsAre(128, 128, 128));
}

TEST(JpegWindow, AMissingOrWrongRestartMarkerIsFound) {
  const std::string file = encode({.height = 64, .width = 64, .rows = 1});
  const size_t first = file.find("\xFF\xD0"), second = file.find("\xFF\xD1");
  ASSERT_LT(first, second);
  std::string wrong = file, missing = file;
  wrong[first + 1] = '\xD2';
  missing.erase(first, second - first);
  EXPECT_THAT(error_of(wrong, {0, 0, 64, 64}), HasSubstr("marker"));
  EXPECT_THAT(error_of(missing, {0, 0, 64, 64}), HasSubstr("marker"));
}

// The pixels do not matter; the program must not crash or hang.
TEST(JpegWindow, DamagedFilesGiveSomePixelsOrAnError) {
  std::mt19937 random(1);
  int errors = 0;
  for (const Kind& kind :
       {Kind{.height = 48, .width = 48}, Kind{.height = 48, .width = 48, .interval = 2},
        Kind{.height = 48, .width = 48, .gray = true}, Kind{.height = 48, .width = 48, .progressive = true}}) {
    const std::string file = encode(kind);
    for (int i = 0; i < 1500; ++i) {
      std::string bad = file;
      for (int flips = 0; flips <= i % 3; ++flips) {
        char& byte = bad[(i % 2 == 0 ? random() % 700 : random()) % bad.size()];
        byte = static_cast<char>(byte ^ (1 << random() % 8));
      }
      WindowDecoder decoder;
      try {
        decoder.open(bad);
        if (decoder.height() > 4096 || decoder.width() > 4096) continue;
        const ImageWindow window{decoder.height() / 3, decoder.width() / 3, (decoder.height() + 1) / 2,
                                 (decoder.width() + 1) / 2};
        std::vector<uint8_t> pixels(static_cast<size_t>(window.height * window.width * 3));
        decoder.decode(window, i % 4 < 2 ? 3 : 1, pixels.data());
      } catch (const BadPhoto&) {
        ++errors;
      }
    }
  }
  EXPECT_GT(errors, 500);
}

TEST(JpegWindow, WhatIsNoJpegIsAnError) {
  EXPECT_THAT(error_of("", {0, 0, 1, 1}), HasSubstr("damaged JPEG"));
  EXPECT_THAT(error_of("\x89PNG and so on", {0, 0, 1, 1}), HasSubstr("damaged JPEG"));
}

}  // namespace
}  // namespace owt::jpeg_window_test

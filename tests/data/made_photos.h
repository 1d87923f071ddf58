// Image files of every kind that real collections hold, made by the tests.
#pragma once

#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "data/photo.h"

namespace owt {

// Four quadrants, each of one colour: `sides` = {top left, top right, bottom left, bottom right} as 0xRRGGBB.
inline Photo quadrants(int64_t height, int64_t width, const std::vector<uint32_t>& colours) {
  Photo photo{height, width, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const uint32_t colour = colours[static_cast<size_t>((y >= height / 2 ? 2 : 0) + (x >= width / 2 ? 1 : 0))];
      for (const int shift : {16, 8, 0}) photo.pixels.push_back(static_cast<uint8_t>(colour >> shift));
    }
  return photo;
}
inline const std::vector<uint32_t> kFourColours{0xc83232, 0x32c832, 0x3232c8, 0xc8c8c8};

// JPEG of `channels` bytes per pixel as libjpeg takes them.
struct JpegKind {
  J_COLOR_SPACE input = JCS_RGB, stored = JCS_YCbCr;
  bool adobe = false, progressive = false;
};
inline std::string made_jpeg(int64_t height, int64_t width, int channels, std::vector<uint8_t> pixels,
                             const JpegKind& kind) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* file = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &file, &bytes);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = channels;
  jpeg.in_color_space = kind.input;
  jpeg_set_defaults(&jpeg);
  jpeg_set_colorspace(&jpeg, kind.stored);
  jpeg.write_Adobe_marker = kind.adobe;
  jpeg_set_quality(&jpeg, 98, TRUE);
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels.data() + size_t{jpeg.next_scanline} * static_cast<size_t>(width * channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string result(reinterpret_cast<const char*>(file), bytes);
  std::free(file);
  return result;
}
inline std::string made_jpeg(const Photo& photo, bool progressive = false) {
  return made_jpeg(photo.height, photo.width, 3, photo.pixels, {.progressive = progressive});
}
inline std::string gray_jpeg(int64_t height, int64_t width, uint8_t value) {
  return made_jpeg(height, width, 1, std::vector<uint8_t>(static_cast<size_t>(height * width), value),
                   {JCS_GRAYSCALE, JCS_GRAYSCALE});
}
// Inks: Adobe's are stored inverted.
inline std::string cmyk_jpeg(const Photo& photo, J_COLOR_SPACE stored, bool adobe) {
  std::vector<uint8_t> inks;
  for (size_t i = 0; i < photo.pixels.size(); i += 3) {
    for (size_t c = 0; c < 3; ++c)
      inks.push_back(adobe ? photo.pixels[i + c] : static_cast<uint8_t>(255 - photo.pixels[i + c]));
    inks.push_back(adobe ? 255 : 0);
  }
  return made_jpeg(photo.height, photo.width, 4, inks, {JCS_CMYK, stored, adobe});
}

inline std::string big_endian(uint32_t value, int bytes = 4) {
  std::string text;
  for (int i = bytes; i-- > 0;) text += static_cast<char>(value >> (8 * i));
  return text;
}
inline std::string little_endian(uint32_t value, int bytes = 4) {
  std::string text = big_endian(value, bytes);
  return {text.rbegin(), text.rend()};
}

// EXIF data that say how the picture is turned, and nothing else.
inline std::string exif(int orientation, bool little) {
  const auto number = [&](uint32_t v, int n) { return little ? little_endian(v, n) : big_endian(v, n); };
  return (little ? "II" : "MM") + number(42, 2) + number(8, 4) + number(1, 2) + number(274, 2) + number(3, 2) +
         number(1, 4) + number(static_cast<uint32_t>(orientation), 2) + number(0, 2) + number(0, 4);
}
inline std::string with_exif(const std::string& jpeg, const std::string& data) {
  const std::string marker = std::string("Exif\0\0", 6) + data;
  return jpeg.substr(0, 2) + "\xff\xe1" + big_endian(static_cast<uint32_t>(marker.size() + 2), 2) + marker +
         jpeg.substr(2);
}

inline cv::Mat matrix_of(const Photo& photo, bool alpha = false) {  // BGR or BGRA, as OpenCV writes it
  cv::Mat matrix(static_cast<int>(photo.height), static_cast<int>(photo.width), alpha ? CV_8UC4 : CV_8UC3);
  for (size_t i = 0; i < photo.pixels.size() / 3; ++i) {
    uint8_t* to = matrix.data + i * matrix.elemSize();
    for (size_t c = 0; c < 3; ++c) to[c] = photo.pixels[3 * i + 2 - c];
    if (alpha) to[3] = 255;
  }
  return matrix;
}
inline std::string encoded(const std::string& ending, const cv::Mat& matrix, const std::vector<int>& options = {}) {
  std::vector<uint8_t> file;
  OWT_CHECK(cv::imencode(ending, matrix, file, options));
  return {file.begin(), file.end()};
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + body + big_endian(static_cast<uint32_t>(sum));
}
inline std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  out.resize(size);
  return out;
}
// `rows`: each with its filter byte; `middle`: chunks between header and data.
inline std::string made_png(uint32_t width, uint32_t height, int depth, int colour, const std::string& middle,
                            const std::string& rows) {
  const std::string header = big_endian(width) + big_endian(height) + static_cast<char>(depth) +
                             static_cast<char>(colour) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + middle + png_chunk("IDAT", deflated(rows)) +
         png_chunk("IEND", "");
}
inline const std::string kPngSignature = "\x89PNG\r\n\x1a\n";

// Uncompressed RGB, with a fourth channel of alpha where `extra` says of which kind (1: colours multiplied by it, 2: not);
// of 8 bits, or 16 where `deep`.
inline std::string made_tiff(int64_t height, int64_t width, const std::string& samples, int orientation, int extra,
                             bool deep = false) {
  std::string entries;
  uint32_t count = 0;
  const auto entry = [&](uint32_t tag, uint32_t type, uint32_t values, uint32_t value) {
    entries += little_endian(tag, 2) + little_endian(type, 2) + little_endian(values) + little_endian(value);
    ++count;
  };
  const uint32_t channels = extra > 0 ? 4 : 3, bits_at = 8, samples_at = 16;
  entry(256, 4, 1, static_cast<uint32_t>(width));
  entry(257, 4, 1, static_cast<uint32_t>(height));
  entry(258, 3, channels, bits_at);
  entry(259, 3, 1, 1);  // uncompressed
  entry(262, 3, 1, 2);  // RGB
  entry(273, 4, 1, samples_at);
  entry(274, 3, 1, static_cast<uint32_t>(orientation));
  entry(277, 3, 1, channels);
  entry(278, 4, 1, static_cast<uint32_t>(height));
  entry(279, 4, 1, static_cast<uint32_t>(samples.size()));
  if (extra > 0) entry(338, 3, 1, static_cast<uint32_t>(extra));
  std::string bits;
  for (int i = 0; i < 4; ++i) bits += little_endian(deep ? 16 : 8, 2);
  return "II" + little_endian(42, 2) + little_endian(samples_at + static_cast<uint32_t>(samples.size())) + bits +
         samples + little_endian(count, 2) + entries + little_endian(0);
}

inline std::string riff(const std::string& type, const std::string& data) {
  return type + little_endian(static_cast<uint32_t>(data.size())) + data + std::string(data.size() % 2, '\0');
}
// Two frames, the first of them at (left, top), each a lossless still.
inline std::string animated_webp(int64_t canvas_height, int64_t canvas_width, const Photo& first, int64_t left,
                                 int64_t top) {
  const auto frame = [&](const Photo& photo) {
    const std::string still = encoded(".webp", matrix_of(photo), {cv::IMWRITE_WEBP_QUALITY, 101});
    const auto number = [](int64_t v, int n) { return little_endian(static_cast<uint32_t>(v), n); };
    return riff("ANMF", number(left / 2, 3) + number(top / 2, 3) + number(photo.width - 1, 3) +
                            number(photo.height - 1, 3) + number(100, 3) + '\0' + still.substr(12));
  };
  const std::string header = std::string("\x02\0\0\0", 4) + little_endian(static_cast<uint32_t>(canvas_width - 1), 3) +
                             little_endian(static_cast<uint32_t>(canvas_height - 1), 3);
  Photo second = first;
  for (uint8_t& pixel : second.pixels) pixel ^= 0xff;
  return riff("RIFF",
              "WEBP" + riff("VP8X", header) + riff("ANIM", std::string(6, '\0')) + frame(first) + frame(second));
}

}  // namespace owt

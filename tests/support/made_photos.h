// Generates image files of every kind that occurs in real collections.
#pragma once

#include <png.h>
#include <sys/mman.h>
#include <tiffio.h>
#include <unistd.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "data/photos/photo.h"

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

// A JPEG file; pixels have `channels` bytes in libjpeg's order.
struct JpegKind {
  J_COLOR_SPACE input = JCS_RGB, stored = JCS_YCbCr;
  bool adobe = false, progressive = false, arithmetic = false;
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
  jpeg.arith_code = kind.arithmetic;
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
inline std::string arithmetic_jpeg(const Photo& photo, bool progressive = false) {
  return made_jpeg(photo.height, photo.width, 3, photo.pixels, {.progressive = progressive, .arithmetic = true});
}
inline std::string gray_jpeg(int64_t height, int64_t width, uint8_t value) {
  return made_jpeg(height, width, 1, std::vector<uint8_t>(static_cast<size_t>(height * width), value),
                   {JCS_GRAYSCALE, JCS_GRAYSCALE});
}
// Inks; Adobe's files store them inverted.
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

// EXIF data with only the orientation of the picture.
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

// The samples of a photo, and 8-bit samples extended to 16 bits.
inline std::string samples_of(const Photo& photo) { return {photo.pixels.begin(), photo.pixels.end()}; }
inline std::string deepened(const std::string& bytes) {
  std::string twice;
  for (const char byte : bytes) twice += std::string(2, byte);
  return twice;
}
// RGB samples with a fourth byte added to each pixel.
inline std::string with_fourth(const std::string& rgb, char fourth) {
  std::string all;
  for (size_t i = 0; i < rgb.size(); i += 3) all += rgb.substr(i, 3) + fourth;
  return all;
}

// Samples in PNG's order, written by libpng.
struct PngKind {
  int depth = 8, colour = PNG_COLOR_TYPE_RGB;
  bool interlaced = false;
};
inline std::string written_png(int64_t height, int64_t width, std::string samples, const PngKind& kind) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string file;
  const auto append = [](png_structp to, png_bytep bytes, size_t count) {
    static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<char*>(bytes), count);
  };
  png_set_write_fn(png, &file, append, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), kind.depth, kind.colour,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  std::vector<png_bytep> rows;
  for (size_t row = 0; row < static_cast<size_t>(height); ++row)
    rows.push_back(reinterpret_cast<png_bytep>(samples.data()) + row * samples.size() / static_cast<size_t>(height));
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}
inline std::string written_png(const Photo& photo) {
  return written_png(photo.height, photo.width, samples_of(photo), {});
}

// R, G, B, A bytes, written by libwebp.
inline std::string written_webp(int64_t height, int64_t width, const std::string& rgba) {
  uint8_t* file = nullptr;
  const size_t bytes = WebPEncodeLosslessRGBA(reinterpret_cast<const uint8_t*>(rgba.data()), static_cast<int>(width),
                                              static_cast<int>(height), static_cast<int>(4 * width), &file);
  const std::string result(reinterpret_cast<const char*>(file), bytes);
  WebPFree(file);
  return result;
}
inline std::string written_webp(const Photo& photo) {
  return written_webp(photo.height, photo.width, with_fourth(samples_of(photo), '\xff'));
}
inline std::string lossy_webp(const Photo& photo, float quality) {
  uint8_t* file = nullptr;
  const size_t bytes = WebPEncodeRGB(photo.pixels.data(), static_cast<int>(photo.width), static_cast<int>(photo.height),
                                     static_cast<int>(3 * photo.width), quality, &file);
  const std::string result(reinterpret_cast<const char*>(file), bytes);
  WebPFree(file);
  return result;
}

// Samples in TIFF's order, written by libtiff.
struct TiffKind {
  int compression = COMPRESSION_NONE, photometric = PHOTOMETRIC_RGB, bits = 8, channels = 3;
  int planar = PLANARCONFIG_CONTIG, format = SAMPLEFORMAT_UINT;
  uint32_t tile = 0;                   // the side of square tiles; 0: strips of 16 rows
  std::vector<uint16_t> palette = {};  // three values for each index: all red, then green, then blue values
};
inline void write_tiff_tiles(TIFF* tiff, int64_t height, int64_t width, const std::string& samples, uint32_t side) {
  const size_t bytes = samples.size() / static_cast<size_t>(height * width);  // per pixel
  for (int64_t top = 0; top < height; top += side)
    for (int64_t left = 0; left < width; left += side) {
      std::string tile(side * side * bytes, '\0');
      for (int64_t y = 0; y < std::min<int64_t>(side, height - top); ++y) {
        const auto count = static_cast<size_t>(std::min<int64_t>(side, width - left)) * bytes;
        const auto from = static_cast<size_t>((top + y) * width + left) * bytes;
        tile.replace(static_cast<size_t>(y) * side * bytes, count, samples, from, count);
      }
      TIFFWriteTile(tiff, tile.data(), static_cast<uint32_t>(left), static_cast<uint32_t>(top), 0, 0);
    }
}
inline void write_tiff_rows(TIFF* tiff, int64_t height, std::string samples, int planes) {
  const size_t row_bytes = samples.size() / static_cast<size_t>(height * planes);
  for (int plane = 0; plane < planes; ++plane)
    for (int64_t y = 0; y < height; ++y)
      TIFFWriteScanline(tiff, samples.data() + static_cast<size_t>(plane * height + y) * row_bytes,
                        static_cast<uint32_t>(y), static_cast<uint16_t>(plane));
}
inline std::string written_tiff(int64_t height, int64_t width, const std::vector<std::string>& pages,
                                const TiffKind& kind) {
  const int file = memfd_create("made.tiff", 0);
  TIFF* tiff = TIFFFdOpen(dup(file), "made.tiff", "w");
  for (const std::string& samples : pages) {
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, static_cast<uint32_t>(width));
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, static_cast<uint32_t>(height));
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, kind.compression);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, kind.photometric);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, kind.bits);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, kind.channels);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, kind.planar);
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, kind.format);
    if (kind.compression == COMPRESSION_JPEG) TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    if (const size_t n = kind.palette.size() / 3; n > 0)
      TIFFSetField(tiff, TIFFTAG_COLORMAP, kind.palette.data(), kind.palette.data() + n, kind.palette.data() + 2 * n);
    if (kind.tile > 0) {
      TIFFSetField(tiff, TIFFTAG_TILEWIDTH, kind.tile);
      TIFFSetField(tiff, TIFFTAG_TILELENGTH, kind.tile);
      write_tiff_tiles(tiff, height, width, samples, kind.tile);
    } else {
      TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 16);
      write_tiff_rows(tiff, height, samples, kind.planar == PLANARCONFIG_SEPARATE ? kind.channels : 1);
    }
    TIFFWriteDirectory(tiff);
  }
  TIFFClose(tiff);
  std::string result(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  OWT_CHECK_EQ(pread(file, result.data(), result.size(), 0), static_cast<ssize_t>(result.size()));
  close(file);
  return result;
}
inline std::string written_tiff(const Photo& photo, const TiffKind& kind = {}) {
  return written_tiff(photo.height, photo.width, {samples_of(photo)}, kind);
}

// Rows in BMP's order, after a palette (B, G, R, 0) or three masks.
struct BmpKind {
  int bits = 24;
  uint32_t compression = 0;
  std::string middle = {};
};
inline std::string made_bmp(int64_t height, int64_t width, const std::string& rows, const BmpKind& kind) {
  const auto number = [](int64_t value, int bytes = 4) { return little_endian(static_cast<uint32_t>(value), bytes); };
  const auto middle = static_cast<int64_t>(kind.middle.size());
  return "BM" + number(0) + number(0) + number(54 + middle) + number(40) + number(width) + number(height) +
         number(1, 2) + number(kind.bits, 2) + number(kind.compression) + std::string(12, '\0') +
         number(kind.bits <= 8 ? middle / 4 : 0) + number(0) + kind.middle + rows;
}
// `extra`: bytes after B, G, R of a pixel.
inline std::string made_bmp(const Photo& photo, const std::string& extra = "") {
  std::string rows;
  for (int64_t y = photo.height; y-- > 0;) {
    for (int64_t x = 0; x < photo.width; ++x) {
      const uint8_t* rgb = photo.pixels.data() + (y * photo.width + x) * 3;
      rows += std::string{static_cast<char>(rgb[2]), static_cast<char>(rgb[1]), static_cast<char>(rgb[0])} + extra;
    }
    rows.resize((rows.size() + 3) / 4 * 4);
  }
  return made_bmp(photo.height, photo.width, rows, {.bits = extra.empty() ? 24 : 32});
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
// `rows`: each starts with its filter byte; `middle`: chunks between header and data.
inline std::string made_png(uint32_t width, uint32_t height, int depth, int colour, const std::string& middle,
                            const std::string& rows) {
  const std::string header = big_endian(width) + big_endian(height) + static_cast<char>(depth) +
                             static_cast<char>(colour) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + middle + png_chunk("IDAT", deflated(rows)) +
         png_chunk("IEND", "");
}

// Uncompressed RGB after its directory. `extra`: kind of a fourth channel with alpha (1: colours are multiplied by it,
// 2: they are not). 8 bits, or 16 if `deep`.
inline std::string made_tiff(int64_t height, int64_t width, const std::string& samples, int orientation, int extra,
                             bool deep = false) {
  std::string entries;
  const auto entry = [&](uint32_t tag, uint32_t type, uint32_t values, uint32_t value) {
    entries += little_endian(tag, 2) + little_endian(type, 2) + little_endian(values) + little_endian(value);
  };
  const uint32_t channels = extra > 0 ? 4 : 3, count = extra > 0 ? 11 : 10;
  const uint32_t bits_at = 8, directory_at = 16, samples_at = directory_at + 2 + 12 * count + 4;
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
  return "II" + little_endian(42, 2) + little_endian(directory_at) + bits + little_endian(count, 2) + entries +
         little_endian(0) + samples;
}

inline std::string riff(const std::string& type, const std::string& data) {
  return type + little_endian(static_cast<uint32_t>(data.size())) + data + std::string(data.size() % 2, '\0');
}
// Two frames, the first at (left, top); both are lossless still images.
inline std::string animated_webp(int64_t canvas_height, int64_t canvas_width, const Photo& first, int64_t left,
                                 int64_t top) {
  const auto frame = [&](const Photo& photo) {
    const std::string still = written_webp(photo);
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

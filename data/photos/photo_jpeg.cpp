#include <algorithm>
#include <cstdlib>
#include <utility>

#include "data/jpeg/bad_photo.h"
#include "data/jpeg/libjpeg.h"
#include "data/photos/arithmetic_jpeg.h"
#include "data/photos/exif.h"
#include "data/photos/photo_formats.h"

namespace owt {
namespace {

// There are two kinds of warnings: libjpeg invented a part of the image, or there are faults outside the image data.
void on_warning(j_common_ptr jpeg) {
  JpegErrors& errors = JpegErrors::of(jpeg);
  const int code = errors.base.msg_code;
  if (code == JWRN_JPEG_EOF) errors.input_ended = true;
  if (code == JWRN_HIT_MARKER) errors.data_missing = true;
  if (code == JWRN_EXTRANEOUS_DATA) ++errors.rests;
  if (code == JWRN_HUFF_BAD_CODE || code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC) JpegErrors::give_up(jpeg);
}

class JpegReader {
 public:
  JpegReader(std::string_view file, const PhotoLimits& limits) : file_(file), limits_(limits) {}

  Photo read() {
    read_header();
    const auto turn = admit(jpeg_.image_height, jpeg_.image_width, limits_);
    if (!can_hold(file_.size(), jpeg_.image_height, jpeg_.image_width, jpeg_.arith_code))
      throw BadPhoto("truncated JPEG");
    if (jpeg_.arith_code) pad_scans();
    choose_output();
    reader_.must([this] { jpeg_start_decompress(&jpeg_); });
    Photo photo{.height = jpeg_.output_height, .width = jpeg_.output_width};
    photo.pixels.resize(photo.height * photo.width * 3);
    if (jpeg_.out_color_space == JCS_CMYK) row_.resize(photo.width * 4);
    uint8_t* const pixels = photo.pixels.data();
    reader_.must([this, pixels] { read_rows(pixels); });
    // A file that lacks only its end marker is complete. But with several scans another scan could be missing, and an
    // arithmetic decoder does not report missing data: it reads zeros.
    const JpegErrors& errors = reader_.errors;
    if (errors.data_missing || (errors.input_ended && (several_scans_ || jpeg_.arith_code)) ||
        errors.rests < padded_.scans)
      throw BadPhoto("truncated JPEG");
    return upright(std::move(photo), jpeg_orientation(file_));
  }

 private:
  void read_header() {
    reader_.read_header(file_);
    several_scans_ = jpeg_has_multiple_scans(&jpeg_);
  }

  void pad_scans() {
    padded_ = padded_scans(file_, zeros_of_whole_scans(jpeg_.image_height, jpeg_.image_width));
    jpeg_abort_decompress(&jpeg_);
    reader_.errors.rests = 0;
    reader_.read_header(padded_.file);
  }

  void choose_output() {
    const bool four = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg_.dct_method = JDCT_ISLOW;
    const int64_t side = std::min(jpeg_.image_height, jpeg_.image_width);
    jpeg_.scale_num = jpeg_.scale_denom = 1;
    while (limits_.short_side > 0 && jpeg_.scale_denom < 8 &&
           side / (2 * int64_t{jpeg_.scale_denom}) >= 2 * limits_.short_side)
      jpeg_.scale_denom *= 2;
  }

  void read_rows(uint8_t* pixels) {
    const size_t row_bytes = size_t{jpeg_.output_width} * 3;
    while (jpeg_.output_scanline < jpeg_.output_height) {
      uint8_t* const rgb = pixels + jpeg_.output_scanline * row_bytes;
      JSAMPROW row = row_.empty() ? rgb : row_.data();
      jpeg_read_scanlines(&jpeg_, &row, 1);
      if (!row_.empty()) to_rgb(rgb);
    }
    jpeg_finish_decompress(&jpeg_);
  }

  // Adobe stores inverted inks, and no other program writes four inks.
  void to_rgb(uint8_t* rgb) const {
    const int flip = jpeg_.saw_Adobe_marker ? 0 : 255;
    for (size_t x = 0; x < jpeg_.output_width; ++x)
      for (size_t c = 0; c < 3; ++c)
        rgb[3 * x + c] = static_cast<uint8_t>(((row_[4 * x + c] ^ flip) * (row_[4 * x + 3] ^ flip) + 127) / 255);
  }

  std::string_view file_;
  PhotoLimits limits_;
  JpegDecompressor reader_{on_warning};
  jpeg_decompress_struct& jpeg_ = reader_.info;
  bool several_scans_ = false;
  PaddedScans padded_;        // for arithmetic codes
  std::vector<uint8_t> row_;  // for CMYK files
};

class JpegWriter {
 public:
  JpegWriter() { jpeg_.err = &errors_.base; }
  ~JpegWriter() {
    jpeg_destroy_compress(&jpeg_);
    std::free(file_);
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  std::string write(const Photo& photo, const JpegSettings& settings) {
    if (!guarded(errors_.back, [&] { compress(photo, settings); })) {
      file_ = nullptr;  // libjpeg may have freed it for a larger one, and reports that only at the end
      errors_.check_memory();
      fail("cannot write a JPEG of ", photo.width, " x ", photo.height, ": ",
           static_cast<const char*>(errors_.back.reason));
    }
    return {reinterpret_cast<const char*>(file_), bytes_};
  }

 private:
  void compress(const Photo& photo, const JpegSettings& settings) {
    jpeg_create_compress(&jpeg_);
    jpeg_mem_dest(&jpeg_, &file_, &bytes_);
    jpeg_.image_width = static_cast<JDIMENSION>(photo.width);
    jpeg_.image_height = static_cast<JDIMENSION>(photo.height);
    jpeg_.input_components = 3;
    jpeg_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg_);  // YCbCr 4:2:0
    if (settings.grey) jpeg_set_colorspace(&jpeg_, JCS_GRAYSCALE);
    jpeg_set_quality(&jpeg_, settings.quality, TRUE);
    jpeg_.restart_in_rows = settings.restart_in_rows;
    jpeg_.restart_interval = settings.restart_interval;
    jpeg_.optimize_coding = TRUE;  // smaller, and so faster to decode
    jpeg_start_compress(&jpeg_, TRUE);
    while (jpeg_.next_scanline < jpeg_.image_height) {
      const auto* row = photo.pixels.data() + size_t{jpeg_.next_scanline} * jpeg_.image_width * 3;
      auto* writable = const_cast<JSAMPROW>(row);  // libjpeg only reads it
      jpeg_write_scanlines(&jpeg_, &writable, 1);
    }
    jpeg_finish_compress(&jpeg_);
  }

  JpegErrors errors_{on_warning};
  jpeg_compress_struct jpeg_{};
  unsigned char* file_ = nullptr;
  unsigned long bytes_ = 0;
};

}  // namespace

Photo read_jpeg(std::string_view file, const PhotoLimits& limits) { return JpegReader(file, limits).read(); }

std::string jpeg_of(const Photo& photo, const JpegSettings& settings) {
  OWT_CHECK_EQ(std::ssize(photo.pixels), photo.height * photo.width * 3);
  if (std::max(photo.height, photo.width) > JPEG_MAX_DIMENSION)
    throw BadPhoto(concat(photo.width, " x ", photo.height, " pixels, more than a JPEG can have"));
  return JpegWriter().write(photo, settings);
}

}  // namespace owt

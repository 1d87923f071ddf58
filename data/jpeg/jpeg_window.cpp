#include "data/jpeg/jpeg_window.h"

#include <cstring>
#include <vector>

#include "data/jpeg/bad_photo.h"
#include "data/jpeg/libjpeg.h"

namespace owt {

class WindowDecoder::LibjpegDecoder {
 public:
  LibjpegDecoder() { info_.mem->max_memory_to_use = kMostMemory; }

  void open(std::string_view file) {
    jpeg_abort_decompress(&info_);
    jpeg_.read_header(file);
  }
  int64_t height() const { return info_.image_height; }
  int64_t width() const { return info_.image_width; }
  bool has_arithmetic_codes() const { return info_.arith_code; }

  // Called once after open().
  void decode(const ImageWindow& window, int channels, uint8_t* pixels) {
    line_.resize(width() * channels);
    jpeg_.must([&] { read_rows(window, channels, pixels); });
    jpeg_abort_decompress(&info_);
  }

 private:
  static constexpr long kMostMemory = 1L << 31;

  void read_rows(const ImageWindow& window, int channels, uint8_t* pixels) {
    info_.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    info_.do_fancy_upsampling = FALSE;
    info_.do_block_smoothing = FALSE;
    jpeg_start_decompress(&info_);
    for (int64_t y = 0; y < window.top + window.height; ++y) {
      JSAMPROW line = line_.data();
      jpeg_read_scanlines(&info_, &line, 1);
      if (y < window.top) continue;
      std::memcpy(pixels + (y - window.top) * window.width * channels, line_.data() + window.left * channels,
                  window.width * channels);
    }
  }

  JpegDecompressor jpeg_{JpegErrors::give_up};  // a warning means damaged data
  jpeg_decompress_struct& info_ = jpeg_.info;
  std::vector<uint8_t> line_;
};

WindowDecoder::WindowDecoder() = default;
WindowDecoder::~WindowDecoder() = default;

void WindowDecoder::open(std::string_view file) {
  file_ = file;
  is_baseline_ = baseline_.open(file);
  if (!is_baseline_) {
    if (!whole_) whole_ = std::make_unique<LibjpegDecoder>();
    whole_->open(file);
  }
  check_size();
}

// Called before memory is allocated for the pixels that the header claims.
void WindowDecoder::check_size() const {
  if (height() * width() > kMostPixels)
    throw BadPhoto(concat("JPEG of ", height(), " x ", width(), " pixels, more than 2^28"));
  if (!can_hold(file_.size(), height(), width(), !is_baseline_ && whole_->has_arithmetic_codes()))
    throw BadPhoto(concat("damaged JPEG: ", file_.size(), " bytes cannot hold ", height(), " x ", width(), " pixels"));
}

int64_t WindowDecoder::height() const { return is_baseline_ ? baseline_.height() : whole_->height(); }
int64_t WindowDecoder::width() const { return is_baseline_ ? baseline_.width() : whole_->width(); }

void WindowDecoder::decode(const ImageWindow& window, int channels, uint8_t* pixels) {
  OWT_CHECK(window.top >= 0 && window.left >= 0 && window.height >= 1 && window.width >= 1 &&
            window.height <= height() - window.top && window.width <= width() - window.left);
  if (is_baseline_) return baseline_.decode(window, channels, pixels);
  whole_->open(file_);
  whole_->decode(window, channels, pixels);
}

}  // namespace owt

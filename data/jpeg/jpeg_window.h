// Decodes parts of JPEG files.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/jpeg/baseline_jpeg.h"

namespace owt {

// Keeps its tables and memory between files; for one thread at a time. Files that BaselineJpeg does not support (e.g.
// progressive ones) are decoded whole by libjpeg; both give the same pixels.
class WindowDecoder {
 public:
  WindowDecoder();
  ~WindowDecoder();
  WindowDecoder(const WindowDecoder&) = delete;
  WindowDecoder& operator=(const WindowDecoder&) = delete;

  // The file must outlive the calls of decode(). Throws BadPhoto if it is no JPEG of gray or colour pixels, if it has
  // more than 2^28 pixels, or more than its bytes can hold.
  void open(std::string_view file);
  int64_t height() const;
  int64_t width() const;

  // A window within the image as height x width x channels bytes: 3, RGB, or 1, the luma. Throws BadPhoto for damaged
  // files.
  void decode(const ImageWindow& window, int channels, uint8_t* pixels);

 private:
  class LibjpegDecoder;  // decodes with libjpeg

  void check_size() const;

  std::string_view file_;
  BaselineJpeg baseline_;
  std::unique_ptr<LibjpegDecoder> whole_;
  bool is_baseline_ = false;
};

}  // namespace owt

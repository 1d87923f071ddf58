// Parts of JPEG files as pixels.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/jpeg/baseline_jpeg.h"

namespace owt {

// Keeps its tables and memory from file to file; for one thread at a time. Files that BaselineJpeg does not know
// (progressive, for instance) go through libjpeg, which decodes them whole; both give the same pixels.
class WindowDecoder {
 public:
  WindowDecoder();
  ~WindowDecoder();
  WindowDecoder(const WindowDecoder&) = delete;
  WindowDecoder& operator=(const WindowDecoder&) = delete;

  // The file must outlive the calls of decode(). Throws BadPhoto for what is no JPEG of gray or colour pixels, for
  // more than 2^28 of them, and for more than the file's bytes can hold.
  void open(std::string_view file);
  int64_t height() const;
  int64_t width() const;

  // A window within the image as height x width x 3 bytes RGB. Throws BadPhoto for damaged files.
  void decode(const ImageWindow& window, uint8_t* rgb);

 private:
  class Whole;  // by libjpeg

  void check_size() const;

  std::string_view file_;
  BaselineJpeg baseline_;
  std::unique_ptr<Whole> whole_;
  bool is_baseline_ = false;
};

}  // namespace owt

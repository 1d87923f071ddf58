// libjpeg's errors and warnings, without its messages on the terminal.
#pragma once

// libjpeg's headers require FILE and size_t.
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

// Must follow jpeglib.h, which defines the library's version: message numbers depend on it, and Debian's (libjpeg 6.2)
// differ from Ubuntu's (8.0).
#include <jerror.h>

#include <new>
#include <string_view>

#include "data/jpeg/bad_photo.h"
#include "data/jpeg/jump_back.h"

namespace owt {

// Errors jump back to guarded(errors.back, ...) with libjpeg's message as the reason. The caller decides what warnings
// do.
struct JpegErrors {
  using Handler = void (*)(j_common_ptr);

  explicit JpegErrors(Handler on_warning) : warning(on_warning) {
    jpeg_std_error(&base);
    base.error_exit = give_up;
    base.emit_message = [](j_common_ptr jpeg, int level) {
      if (level < 0) of(jpeg).warning(jpeg);
    };
    base.output_message = [](j_common_ptr) {};
  }
  JpegErrors(const JpegErrors&) = delete;
  JpegErrors& operator=(const JpegErrors&) = delete;

  static JpegErrors& of(j_common_ptr jpeg) { return *reinterpret_cast<JpegErrors*>(jpeg->err); }
  static void give_up(j_common_ptr jpeg) {
    JumpBack& back = of(jpeg).back;
    static_assert(sizeof back.reason >= JMSG_LENGTH_MAX);
    jpeg->err->format_message(jpeg, back.reason);
    back.jump(back.reason);
  }

  // Must be called after an error: lack of memory is not damage. Throws std::bad_alloc.
  void check_memory() const {
    if (base.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  }

  jpeg_error_mgr base{};  // first member, because libjpeg casts to it
  JumpBack back{};
  Handler warning;
  // State for the handler of warnings.
  bool input_ended = false, data_missing = false;
  int rests = 0;  // extraneous bytes before a marker, in a row
};

// libjpeg's decompressor.
class JpegDecompressor {
 public:
  explicit JpegDecompressor(JpegErrors::Handler on_warning) : errors(on_warning) {
    info.err = &errors.base;
    if (!guarded(errors.back, [this] { jpeg_create_decompress(&info); })) throw std::bad_alloc();
    progress_.progress_monitor = check_scans;
    info.progress = &progress_;
  }
  ~JpegDecompressor() { jpeg_destroy_decompress(&info); }
  JpegDecompressor(const JpegDecompressor&) = delete;
  JpegDecompressor& operator=(const JpegDecompressor&) = delete;

  // The file must outlive all reads from it.
  void read_header(std::string_view file) {
    must([this, file] {
      jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
      jpeg_read_header(&info, TRUE);
    });
  }

  // Calls libjpeg as guarded() does. Throws BadPhoto if it gives up, std::bad_alloc if it has no memory. Afterwards the
  // next file can be read.
  template <class Step>
  void must(Step step) {
    if (guarded(errors.back, step)) return;
    jpeg_abort_decompress(&info);
    errors.check_memory();
    if (errors.input_ended) throw BadPhoto("truncated JPEG");
    throw BadPhoto(concat("damaged JPEG: ", static_cast<const char*>(errors.back.reason)));
  }

  jpeg_decompress_struct info{};
  JpegErrors errors;

 private:
  static void check_scans(j_common_ptr jpeg) {
    const auto* info = reinterpret_cast<j_decompress_ptr>(jpeg);
    if (info->input_scan_number > most_scans(info->image_height, info->image_width))
      JpegErrors::of(jpeg).back.jump("more scans than a picture of its size is read for");
  }

  jpeg_progress_mgr progress_{};
};

}  // namespace owt

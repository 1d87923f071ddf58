#include <png.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "data/jpeg/jump_back.h"
#include "data/photos/exif.h"
#include "data/photos/photo_formats.h"
#include "src/system/files.h"

namespace owt {
namespace {

constexpr png_uint_32 kMostChunkBytes = 8'000'000;  // libpng's own limit; the size of the file if that is larger

class PngReader {
 public:
  PngReader(std::string_view file, const PhotoLimits& limits) : file_(file), rest_(file), limits_(limits) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Photo read() {
    must([this] { read_header(); });
    const int64_t height = png_get_image_height(png_, info_), width = png_get_image_width(png_, info_);
    const auto turn = admit(height, width, limits_);
    must([this] { choose_output(); });
    Photo photo = white(height, width);
    if (png_get_channels(png_, info_) == 3) {
      read_rows(photo.pixels.data());
    } else {
      std::vector<uint8_t> rgba(height * width * 4);
      read_rows(rgba.data());
      put_over_white(rgba.data(), height * width, false, photo.pixels.data());
    }
    return upright(std::move(photo), orientation());
  }

 private:
  template <class Step>
  void must(Step step) {
    if (guarded(back_, step)) return;
    // libpng reports a lack of memory only in words: "Out of memory", "insufficient memory".
    if (out_of_memory_ || ::strcasestr(back_.reason, "memory")) throw std::bad_alloc();
    if (truncated_) throw BadPhoto("truncated PNG");
    throw BadPhoto(concat("damaged PNG: ", static_cast<const char*>(back_.reason)));
  }

  static PngReader& self(png_structp png) { return *static_cast<PngReader*>(png_get_error_ptr(png)); }
  static void on_error(png_structp png, png_const_charp why) { self(png).back_.jump(why); }
  // All warnings except one are about data outside the image.
  static void on_warning(png_structp png, png_const_charp why) {
    if (std::strncmp(why, "tRNS", 4) == 0) on_error(png, why);
  }
  static void take_bytes(png_structp png, png_bytep to, size_t count) {
    PngReader& reader = self(png);
    reader.truncated_ = count > reader.rest_.size();
    if (reader.truncated_) png_error(png, "truncated");
    std::memcpy(to, reader.rest_.data(), count);
    reader.rest_.remove_prefix(count);
  }

  void read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    out_of_memory_ = !info_;
    if (out_of_memory_) back_.jump("no memory");
    png_set_read_fn(png_, nullptr, take_bytes);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // admit() checks the limits
    png_set_chunk_malloc_max(png_, std::max<size_t>(rest_.size(), kMostChunkBytes));
    // Skips all chunks that are no part of the image.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_AS_DEFAULT, reinterpret_cast<png_const_bytep>("eXIf"), 1);
    png_read_info(png_, info_);
  }

  void choose_output() {
    png_set_expand(png_);  // palettes, transparent colours, and bits to bytes
    png_set_scale_16(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  // Reads to the end of the file, with its checksums.
  void read_rows(uint8_t* pixels) {
    const size_t row_bytes = png_get_rowbytes(png_, info_);
    const png_uint_32 rows = png_get_image_height(png_, info_);
    must([this, pixels, row_bytes, rows] {
      for (int pass = 0; pass < passes_; ++pass)
        for (png_uint_32 row = 0; row < rows; ++row) png_read_row(png_, pixels + row * row_bytes, nullptr);
      png_read_end(png_, info_);
    });
  }

  int64_t orientation() const {
    png_uint_32 bytes = 0;
    png_bytep exif = nullptr;
    if (png_get_eXIf_1(png_, info_, &bytes, &exif) == 0) return orientation_with_prefix();
    return exif_orientation({reinterpret_cast<const char*>(exif), bytes});
  }

  // libpng drops EXIF data that begin with JPEG's prefix.
  int64_t orientation_with_prefix() const {
    constexpr size_t kSignature = 8, kAround = 12;  // bytes around a chunk's data
    for (size_t at = kSignature; at + kAround <= file_.size();) {
      const size_t length = png_get_uint_32(reinterpret_cast<png_const_bytep>(file_.data()) + at);
      if (length > file_.size() - at - kAround) break;
      if (file_.substr(at + 4, 4) == "eXIf") return exif_orientation(file_.substr(at + 8, length));
      at += kAround + length;
    }
    return 1;
  }

  std::string_view file_, rest_;
  PhotoLimits limits_;
  JumpBack back_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  bool truncated_ = false, out_of_memory_ = false;
};

}  // namespace

Photo read_png(std::string_view file, const PhotoLimits& limits) { return PngReader(file, limits).read(); }

std::string png_of(const Photo& photo) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(photo.width);
  image.height = static_cast<png_uint_32>(photo.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  if (!png_image_write_to_memory(&image, file.data(), &bytes, 0, photo.pixels.data(), 0, nullptr))
    fail("cannot make a PNG of ", photo.width, " x ", photo.height,
         " pixels: ", static_cast<const char*>(image.message));
  file.resize(bytes);
  return file;
}

void write_png(const std::string& path, const Photo& photo) { write_file_atomically(path, png_of(photo)); }

}  // namespace owt

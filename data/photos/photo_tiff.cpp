#include <tiffio.h>

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "data/photos/photo_formats.h"

namespace owt {
namespace {

// A file in memory for libtiff, and libtiff's messages about it.
struct TiffSource {
  std::string_view file;
  uint64_t position = 0;
  char error[256] = "";  // the first one, which causes the others

  static TiffSource& of(thandle_t handle) { return *static_cast<TiffSource*>(handle); }
};

tmsize_t read_bytes(thandle_t handle, void* to, tmsize_t most) {
  TiffSource& source = TiffSource::of(handle);
  const uint64_t left = source.file.size() - std::min<uint64_t>(source.position, source.file.size());
  const uint64_t count = std::min<uint64_t>(left, most);
  std::memcpy(to, source.file.data() + source.file.size() - left, count);
  source.position += count;
  return static_cast<tmsize_t>(count);
}
tmsize_t write_nothing(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek_to(thandle_t handle, toff_t offset, int whence) {
  TiffSource& source = TiffSource::of(handle);
  const uint64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? source.position : source.file.size();
  return source.position = from + offset;
}
int leave_open(thandle_t) { return 0; }
toff_t size_of(thandle_t handle) { return TiffSource::of(handle).file.size(); }
int map_all(thandle_t handle, void** base, toff_t* size) {
  const std::string_view file = TiffSource::of(handle).file;
  *base = const_cast<char*>(file.data());  // libtiff only reads it
  *size = file.size();
  return 1;
}
void unmap_nothing(thandle_t, void*, toff_t) {}

// libtiff has one pair of handlers per process. Errors without a handle belong to no file.
void note_error(thandle_t handle, const char*, const char* format, va_list values) {
  if (handle && !TiffSource::of(handle).error[0])
    std::vsnprintf(TiffSource::of(handle).error, sizeof TiffSource::error, format, values);
}
// Most warnings are about irrelevant tags. libjpeg's warnings say that it invented a part of the image.
void note_warning(thandle_t handle, const char* module, const char* format, va_list values) {
  if (module && std::strcmp(module, "JPEGLib") == 0) note_error(handle, module, format, values);
}
void quiet_libtiff() {
  [[maybe_unused]] static const bool once = [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
    TIFFSetErrorHandlerExt(note_error);
    TIFFSetWarningHandlerExt(note_warning);
    return true;
  }();
}

class TiffReader {
 public:
  TiffReader(std::string_view file, const PhotoLimits& limits) : source_{file}, limits_(limits) {
    quiet_libtiff();
    tiff_.reset(TIFFClientOpen("TIFF", "r", &source_, read_bytes, write_nothing, seek_to, leave_open, size_of, map_all,
                               unmap_nothing));
    if (!tiff_) damaged();
    source_.error[0] = '\0';  // errors about optional tags
  }

  Photo read() {
    const int64_t height = number(TIFFTAG_IMAGELENGTH), width = number(TIFFTAG_IMAGEWIDTH);
    const auto turn = admit(height, width, limits_);
    check_part_size(height * width);
    std::vector<uint32_t> raster(height * width);
    const bool multiplied = convert(raster, static_cast<uint32_t>(height), static_cast<uint32_t>(width));
    Photo photo = white(height, width);
    static_assert(std::endian::native == std::endian::little,
                  "a pixel of libtiff's is R, G, B, A from its lowest byte on");
    put_over_white(reinterpret_cast<const uint8_t*>(raster.data()), height * width, multiplied, photo.pixels.data());
    return upright(std::move(photo), orientation());
  }

 private:
  struct Close {
    void operator()(TIFF* tiff) const { TIFFClose(tiff); }
  };

  // libtiff has many messages for a lack of memory, and uses some of them for damage too. `bytes`: memory that it may
  // have needed besides the file.
  [[noreturn]] void damaged(uint64_t bytes = 0) const {
    check_memory(source_.file.size() + bytes);
    throw BadPhoto(concat("damaged TIFF: ", source_.error[0] ? source_.error : "it cannot be decoded"));
  }

  int64_t number(ttag_t tag) const {
    uint32_t value = 0;
    TIFFGetField(tiff_.get(), tag, &value);
    return value;
  }
  int64_t orientation() const {
    uint16_t value = ORIENTATION_TOPLEFT;
    TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ORIENTATION, &value);
    return value;
  }

  uint64_t part_bytes() const {
    return TIFFIsTiled(tiff_.get()) ? TIFFTileSize64(tiff_.get()) : TIFFStripSize64(tiff_.get());
  }
  static std::string unsupported(const char* why) { return concat("TIFF of a kind that is not supported: ", why); }

  // libtiff allocates memory for a strip or tile. Its size is limited to the larger of the image and a large tile, and
  // by the limit for pixels; for four 16-bit channels.
  void check_part_size(int64_t pixels) const {
    constexpr int64_t kLargeTile = 2048 * 2048;
    const uint64_t bytes = part_bytes();
    if (bytes == 0) damaged();
    if (bytes > static_cast<uint64_t>(std::min(limits_.pixels, std::max(pixels, kLargeTile))) * 8)
      throw BadPhoto(concat("TIFF with parts of ", bytes, " bytes, more than its pixels can need"));
  }

  // Fills the raster with the rows as stored; returns whether colours are multiplied by alpha.
  bool convert(std::vector<uint32_t>& raster, uint32_t height, uint32_t width) {
    char why[1024] = "";
    TIFFRGBAImage image;
    constexpr int kStopAtErrors = 1;
    const uint64_t bytes = part_bytes() * 2 + uint64_t{width} * height * 4;
    if (!TIFFRGBAImageOK(tiff_.get(), why)) throw BadPhoto(unsupported(why));
    if (!TIFFRGBAImageBegin(&image, tiff_.get(), kStopAtErrors, why)) {
      check_memory(bytes);
      throw BadPhoto(unsupported(why));
    }
    image.req_orientation = image.orientation;  // unchanged: upright() turns it
    const bool done = TIFFRGBAImageGet(&image, raster.data(), width, height) != 0;
    const bool gray = image.photometric == PHOTOMETRIC_MINISBLACK || image.photometric == PHOTOMETRIC_MINISWHITE;
    const bool plain = gray && image.alpha == EXTRASAMPLE_UNASSALPHA;  // libtiff multiplies other colours
    TIFFRGBAImageEnd(&image);
    if (!done || source_.error[0]) damaged(bytes);
    return !plain;
  }

  TiffSource source_;
  PhotoLimits limits_;
  std::unique_ptr<TIFF, Close> tiff_;
};

}  // namespace

Photo read_tiff(std::string_view file, const PhotoLimits& limits) { return TiffReader(file, limits).read(); }

}  // namespace owt

// Reads any bytes as a photograph; a PNG also with corrected checksums, which a fuzzer does not find.
#include <zlib.h>

#include "data/photos/photo.h"
#include "tests/fuzz/input.h"

namespace {

constexpr int64_t kMostPhotoPixels = 1 << 16;  // larger images are slow and no different

void read(std::string_view file) {
  owt::try_reading([&] {
    const owt::Photo photo = owt::read_photo(file, {.pixels = kMostPhotoPixels});
    const int64_t pixels = photo.height * photo.width;
    owt::promise(photo.height > 0 && photo.width > 0 && pixels <= kMostPhotoPixels, "a photo is within the limits");
    owt::promise(static_cast<int64_t>(photo.pixels.size()) == 3 * pixels, "a pixel has three bytes");
  });
}

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// A PNG is a signature and chunks: length, type, data, checksum of type and data.
std::string with_right_checksums(std::string png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t length = big_endian(png, at);
    if (length > png.size() - at - 12) break;
    const auto* type = reinterpret_cast<const Bytef*>(png.data()) + at + 4;
    const auto sum = static_cast<uint32_t>(crc32(0, type, static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += 12 + length;
  }
  return png;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const std::string_view file = owt::text_of(bytes, count);
  read(file);
  if (file.starts_with("\x89PNG")) read(with_right_checksums(std::string(file)));
  return 0;
}

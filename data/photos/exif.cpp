#include "data/photos/exif.h"

#include "data/photos/bytes.h"

namespace owt {
namespace {

constexpr uint32_t kOrientation = 274;

// The orientation in the first directory: entries of tag, type, count and value, each 12 bytes.
uint32_t orientation_in(const Bytes& bytes, bool little) {
  const auto number = [&](uint64_t at, int size) { return little ? bytes.little(at, size) : bytes.big(at, size); };
  const uint64_t directory = number(4, 4);
  const uint32_t entries = number(directory, 2);
  for (uint64_t entry = directory + 2; entry < directory + 2 + 12 * uint64_t{entries}; entry += 12) {
    constexpr uint32_t kByte = 1, kShort = 3;
    if (number(entry, 2) != kOrientation) continue;
    const uint32_t type = number(entry + 2, 2);
    return number(entry + 8, type == kByte ? 1 : type == kShort ? 2 : 4);
  }
  return 1;
}

}  // namespace

int64_t exif_orientation(std::string_view exif) {
  std::string_view tiff = exif;
  while (tiff.starts_with(kExifPrefix)) tiff.remove_prefix(kExifPrefix.size());
  if (!tiff.starts_with("II") && !tiff.starts_with("MM")) return 1;
  try {
    const uint32_t value = orientation_in(Bytes(tiff, "EXIF"), tiff.starts_with("II"));
    return value >= 1 && value <= 8 ? value : 1;
  } catch (const BadPhoto&) {
    return 1;
  }
}

// Markers are 0xff and a byte, most of them with a length and data. Between them may be more bytes of 0xff, and
// garbage.
int64_t jpeg_orientation(std::string_view file) {
  constexpr uint8_t kFill = 0xff, kStuffed = 0x00, kTemporary = 0x01, kRestart0 = 0xd0, kImageStart = 0xd8;
  constexpr uint8_t kImageEnd = 0xd9, kScan = 0xda, kApp1 = 0xe1;
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(file[at]); };
  for (size_t at = 0; at + 3 < file.size();) {
    const uint8_t marker = byte(at + 1);
    if (byte(at) != kFill || marker == kFill || marker == kStuffed) {
      ++at;
    } else if (marker == kTemporary || (marker >= kRestart0 && marker <= kImageStart)) {
      at += 2;
    } else if (marker == kScan || marker == kImageEnd) {
      return 1;
    } else {
      const size_t length = size_t{byte(at + 2)} << 8 | byte(at + 3);
      const std::string_view data = file.substr(at + 4, length < 2 ? 0 : length - 2);
      if (marker == kApp1 && data.starts_with(kExifPrefix)) return exif_orientation(data);
      at += 2 + length;
    }
  }
  return 1;
}

}  // namespace owt

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

}  // namespace owt

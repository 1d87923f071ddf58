#include "data/photos/arithmetic_jpeg.h"

namespace owt {
namespace {

constexpr uint8_t kMarker = 0xff, kStuffing = 0, kFirstRestart = 0xd0, kLastRestart = 0xd7, kEndOfImage = 0xd9,
                  kStartOfScan = 0xda;

bool ends_a_segment(uint8_t code) {
  return code != kStuffing && code != kMarker && (code < kFirstRestart || code > kLastRestart);
}

}  // namespace

PaddedScans padded_scans(std::string_view file, size_t zeros) {
  PaddedScans padded;
  const auto byte = [&](size_t at) { return at < file.size() ? static_cast<uint8_t>(file[at]) : uint8_t{0}; };
  size_t copied = 0;
  bool in_scan = false;
  for (size_t at = 2; at + 1 < file.size();) {
    const uint8_t code = byte(at + 1);
    if (byte(at) != kMarker || !ends_a_segment(code)) {
      ++at;
      continue;
    }
    if (in_scan) {
      size_t end = at;
      while (byte(end - 1) == kMarker) --end;  // fill bytes belong to the marker
      padded.file.append(file.substr(copied, end - copied)).append(zeros, '\0');
      copied = end;
      ++padded.scans;
    }
    if (code == kEndOfImage) break;
    in_scan = code == kStartOfScan;
    if (in_scan) {
      // A scan that refines DC coefficients has one bit per block. All of them may be zeros, which the encoder leaves
      // out.
      const size_t spectrum = at + 5 + 2 * size_t{byte(at + 4)};
      in_scan = byte(spectrum) != 0 || byte(spectrum + 2) >> 4 == 0;
    }
    at += 2 + static_cast<size_t>(byte(at + 2) << 8 | byte(at + 3));
  }
  padded.file.append(file.substr(copied));
  return padded;
}

}  // namespace owt

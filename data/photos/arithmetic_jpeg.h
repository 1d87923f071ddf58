// Detects truncated JPEG files with arithmetic codes. libjpeg does not notice the truncation if a marker follows the
// data.
//
// After the data of a scan a decoder reads zeros, because an encoder leaves out trailing zeros (ITU-T T.81, D.1.8). For
// complete data it reads a few zero bytes; for truncated data it reads zeros for the rest of the image.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace owt {

// A copy of the file with `zeros` more zero bytes after each scan, which decodes to the same pixels. If a decoder
// leaves some of them unread after a scan, the scan's data were complete.
struct PaddedScans {
  std::string file{};
  int scans = 0;  // number of padded scans: scans that a marker ends, except refinements of DC coefficients
};
PaddedScans padded_scans(std::string_view file, size_t zeros);

// More zero bytes than the codes of an image of one colour leave out: 10 for 4000 x 4000 pixels.
inline size_t zeros_of_whole_scans(int64_t height, int64_t width) {
  return 64 + static_cast<size_t>(height * width >> 20);
}

}  // namespace owt

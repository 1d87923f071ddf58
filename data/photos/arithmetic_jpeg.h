// Truncated JPEG files with arithmetic codes, which libjpeg does not notice where a marker follows the data.
//
// Behind the data of a scan a decoder reads zeros, as an encoder leaves out zeros at their end (ITU-T T.81, D.1.8):
// some bytes of them, whereas of data that are cut off it goes on to read zeros for the rest of the picture.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace owt {

// A file whose scans have `zeros` zero bytes more at their ends, which decode to the same pixels. Where a decoder finds
// some of them left over behind a scan, its data were complete.
struct PaddedScans {
  std::string file{};
  int scans = 0;  // that were padded: those that a marker ends, but for refinements of DC coefficients
};
PaddedScans padded_scans(std::string_view file, size_t zeros);

// More than the codes of a picture of one colour leave out: of 4000 x 4000 pixels 10.
inline size_t zeros_of_whole_scans(int64_t height, int64_t width) {
  return 64 + static_cast<size_t>(height * width >> 20);
}

}  // namespace owt

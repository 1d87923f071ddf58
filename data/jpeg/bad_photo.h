// Files that are refused as images.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/system/check.h"

namespace owt {

// Why a file is no photo: "empty file", "truncated JPEG", "200000 x 200000 pixels, more than 2^28" ...
class BadPhoto : public Error {
 public:
  using Error::Error;
};

// Larger images are not decoded, because a few kilobytes can claim terabytes.
constexpr int64_t kMostPixels = int64_t{1} << 28;

// Whether a JPEG of `bytes` bytes can hold height x width pixels. Huffman codes take at least one bit for each 8 x 8
// block of one component; half a bit is required here. Arithmetic coding has no such limit: an image of one colour
// takes a ten thousandth of a bit per block. Here it may be 64 times as dense. So an image of one colour with ten
// million pixels passes, but a few bytes cannot request gigabytes.
inline bool can_hold(uint64_t bytes, int64_t height, int64_t width, bool arithmetic = false) {
  return static_cast<uint64_t>(height * width) / (arithmetic ? 1 << 16 : 1 << 10) <= bytes;
}

// A JPEG may request as many passes over all its pixels as it has bytes. Usual files have 10. This limit allows 2^32
// visits of a pixel in total, some seconds.
inline int most_scans(int64_t height, int64_t width) {
  constexpr int64_t kMost = 500, kVisits = int64_t{1} << 32;
  return static_cast<int>(std::min(kMost, kVisits / std::max<int64_t>(height * width, 1)));
}

}  // namespace owt

// What files are refused as images.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/check.h"

namespace owt {

// Why a file is no photo: "empty file", "truncated JPEG", "200000 x 200000 pixels, more than 2^28" ...
class BadPhoto : public Error {
 public:
  using Error::Error;
};

// Images of more pixels are not decoded: a few kilobytes can claim terabytes.
constexpr int64_t kMostPixels = int64_t{1} << 28;

// Whether a JPEG of so many bytes can hold so many pixels: Huffman codes take a bit or more of each block of 8 x 8 in
// one component at least, and here there is room for half a bit. Arithmetic coding has no such limit: a picture of one
// colour takes a ten thousandth of a bit for a block. It may be 64 times as dense here, so that a picture of one colour
// of ten million pixels passes, and a few bytes cannot ask for gigabytes.
inline bool can_hold(uint64_t bytes, int64_t height, int64_t width, bool arithmetic = false) {
  return static_cast<uint64_t>(height * width) / (arithmetic ? 1 << 16 : 1 << 10) <= bytes;
}

// A JPEG may ask for as many passes over all of its pixels as it has bytes. Usual ones have 10; so many make 2^32
// visits of a pixel together, some seconds.
inline int most_scans(int64_t height, int64_t width) {
  constexpr int64_t kMost = 500, kVisits = int64_t{1} << 32;
  return static_cast<int>(std::min(kMost, kVisits / std::max<int64_t>(height * width, 1)));
}

}  // namespace owt

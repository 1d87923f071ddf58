// What files are refused as images.
#pragma once

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
// one component at least, and here there is room for half a bit. With arithmetic coding there is no such limit.
inline bool can_hold(uint64_t bytes, int64_t height, int64_t width) {
  return static_cast<uint64_t>(height * width) / (64 * 16) <= bytes;
}

}  // namespace owt

// What is refused as a JPEG file.
#pragma once

#include <cstdint>

#include "src/core/check.h"

namespace owt {

// A file that is no JPEG, a damaged one, or one that is too large.
class BadJpeg : public Error {
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

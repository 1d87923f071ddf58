// The JPEG half of data/photo.h.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "data/photo.h"

namespace owt {

// Throws BadPhoto for images larger than the limit, or with a side that OpenCV does not take. Huge ones are decoded one at
// a time, while the result is held: with one per core memory would run out.
[[nodiscard]] std::unique_lock<std::mutex> admit(int64_t height, int64_t width, const PhotoLimits& limits);
// Turned as EXIF orientation 1 to 8 asks for.
Photo upright(Photo photo, int orientation);

// Whether a JPEG of so many bytes can hold so many pixels: Huffman codes take a bit or more of each block of 8 x 8 in
// one component at least, and here there is room for half a bit. With arithmetic coding there is no such limit.
inline bool can_hold(uint64_t bytes, int64_t height, int64_t width) {
  return static_cast<uint64_t>(height * width) / (64 * 16) <= bytes;
}

Photo read_jpeg(std::string_view file, const PhotoLimits& limits);

}  // namespace owt

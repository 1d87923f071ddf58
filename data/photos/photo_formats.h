// The formats behind data/photos/photo.h: a reader for each, by the format's own library, and what the readers share.
// All of them throw BadPhoto for truncated and damaged files; their libraries' messages are its reason and never reach
// the terminal. std::bad_alloc where memory is short: that is no damage.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "data/photos/photo.h"

namespace owt {

Photo read_jpeg(std::string_view file, const PhotoLimits& limits);
// Any depth and palette; an interlaced one as well. What a file says besides its picture (texts, colour profiles, which
// may be bombs of their own) is not interpreted, but for EXIF's orientation.
Photo read_png(std::string_view file, const PhotoLimits& limits);
// Palettes of 1, 4 and 8 bits, also with run lengths, and 16, 24 and 32 bits. The fourth byte of a pixel is mostly not
// meant as alpha and is not taken for that.
Photo read_bmp(std::string_view file, const PhotoLimits& limits);
// The first frame of an animation on the canvas of all.
Photo read_webp(std::string_view file, const PhotoLimits& limits);
// The first page: what libtiff converts to 8-bit RGB.
Photo read_tiff(std::string_view file, const PhotoLimits& limits);

// Throws BadPhoto for images without pixels, larger than the limit, or with a side that OpenCV does not take. Huge ones
// are decoded one at a time, while the result is held: with one per core memory would run out.
[[nodiscard]] std::unique_lock<std::mutex> admit(int64_t height, int64_t width, const PhotoLimits& limits);
// For a library that does not say why it failed: throws std::bad_alloc where it cannot have so many bytes now.
void check_memory(uint64_t bytes);
// All white.
Photo white(int64_t height, int64_t width);
// Turned as EXIF orientation 1 to 8 asks for.
Photo upright(Photo photo, int64_t orientation);
// What R, G, B, A bytes of `count` pixels look like over white; `multiplied`: the colours are, by alpha, already.
void put_over_white(const uint8_t* rgba, int64_t count, bool multiplied, uint8_t* rgb);

}  // namespace owt

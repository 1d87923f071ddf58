// Readers for the formats of data/photos/photo.h, each with the format's own library, and functions that they share.
// All readers throw BadPhoto for truncated and damaged files; the library's message is the reason and is not printed.
// They throw std::bad_alloc if memory is short, because that is not damage.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "data/photos/photo.h"

namespace owt {

Photo read_jpeg(std::string_view file, const PhotoLimits& limits);
// Any depth and palette, also interlaced. Other data in a file (texts, colour profiles, which may be decompression
// bombs) are not interpreted, except EXIF's orientation.
Photo read_png(std::string_view file, const PhotoLimits& limits);
// Palettes of 1, 4 and 8 bits, also run-length encoded; 16, 24 and 32 bits. The fourth byte of a pixel is rarely meant
// as alpha and is ignored.
Photo read_bmp(std::string_view file, const PhotoLimits& limits);
// The first frame of an animation, on the animation's canvas.
Photo read_webp(std::string_view file, const PhotoLimits& limits);
// The first page, converted by libtiff to 8-bit RGB.
Photo read_tiff(std::string_view file, const PhotoLimits& limits);

// Throws BadPhoto for images without pixels, larger than the limit, or with a side that OpenCV does not accept. Huge
// images are decoded one at a time, while the result is held, because one per core would exhaust memory.
[[nodiscard]] std::unique_lock<std::mutex> admit(int64_t height, int64_t width, const PhotoLimits& limits);
// For libraries that do not report why they failed: throws std::bad_alloc if this number of bytes cannot be allocated.
void check_memory(uint64_t bytes);
// An image with all pixels white.
Photo white(int64_t height, int64_t width);
// Turns the photo as EXIF orientation 1 to 8 requires.
Photo upright(Photo photo, int64_t orientation);
// The colours over white of `count` pixels of R, G, B, A bytes. `multiplied`: the colours are already multiplied by
// alpha.
void put_over_white(const uint8_t* rgba, int64_t count, bool multiplied, uint8_t* rgb);

}  // namespace owt

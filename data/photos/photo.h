// Any image file as upright 8-bit RGB, resized, and written as JPEG. With what real collections hold: grayscale, CMYK
// and YCCK, EXIF orientation, 16 bits, transparency (over white), palettes, several frames (the first is taken), PNG
// named .JPEG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/jpeg/bad_photo.h"

namespace owt {

struct Photo {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels{};  // height x width x 3, RGB
};

struct PhotoLimits {
  int64_t pixels = kMostPixels;
  int64_t short_side = 0;  // the caller will shrink to this: a JPEG may be decoded at 1/2, 1/4 or 1/8 as long as its
                           // short side stays at least twice this; 0: in full
};

// Whether it ends, in upper or lower case, in jpg, jpeg, png, bmp, webp, tif, tiff.
bool named_like_photo(const std::string& name);

// The format is told from the bytes, not from a name. Throws BadPhoto for what cannot be decoded whole: a truncated
// file is refused, not filled with grey. Not all damage shows: BMP, and TIFF that is not deflated, have no checksums,
// and of broken LZW strips libtiff leaves black what it cannot decode.
Photo read_photo(std::string_view file, const PhotoLimits& limits = {});

// Proportions are kept, the long side rounded to the nearest pixel; averages areas when shrinking, bilinear when
// enlarging. As it is where the short side has this length already. Throws BadPhoto where the long side would be more
// than 65,500, the most that a JPEG holds.
Photo resized(Photo photo, int64_t short_side);

struct JpegSettings {
  int quality = 90;          // [1, 100]
  int restart_in_rows = 1;   // rows of 16 x 16 blocks between restart markers; 0: none
  int restart_interval = 0;  // blocks between restart markers instead; 0: by rows
};

// Baseline JPEG, YCbCr 4:2:0, no metadata.
std::string jpeg_of(const Photo& photo, const JpegSettings& settings);
// Lossless, for pictures to look at.
std::string png_of(const Photo& photo);
void write_png(const std::string& path, const Photo& photo);

}  // namespace owt

// Reads any image file as upright 8-bit RGB, resizes it, and writes it as JPEG. Supports what real collections contain:
// grayscale, CMYK and YCCK, EXIF orientation, 16 bits, transparency (over white), palettes, several frames (the first
// is used), PNG files named .JPEG.
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
  int64_t short_side = 0;  // side to which the caller will shrink; a JPEG may be decoded at 1/2, 1/4 or 1/8 while its
                           // short side remains at least twice this; 0: decoded in full
};

constexpr uint64_t kMostPhotoBytes = uint64_t{1} << 30;  // Larger files are not read.

// Whether the name ends, in upper or lower case, in jpg, jpeg, png, bmp, webp, tif, tiff.
bool named_like_photo(const std::string& name);

// The format is detected from the bytes, not from a name. Throws BadPhoto if the image cannot be decoded whole: a
// truncated file is refused, not filled with grey. Some damage is not detected: BMP, and TIFF that is not deflated,
// have no checksums, and libtiff leaves the undecodable part of broken LZW strips black.
Photo read_photo(std::string_view file, const PhotoLimits& limits = {});

// Keeps the proportions; the long side is rounded to the nearest pixel. Averages areas when shrinking, and is bilinear
// when enlarging. Returns the photo unchanged if its short side has this length. Throws BadPhoto if the long side would
// exceed 65,500, the maximum of JPEG.
Photo resized(Photo photo, int64_t short_side);

struct JpegSettings {
  int quality = 90;          // [1, 100]
  int restart_in_rows = 1;   // rows of 16 x 16 blocks between restart markers; 0: none
  int restart_interval = 0;  // blocks between restart markers, instead of rows; 0: by rows
  bool grey = false;         // stores the luma only, as one component; rows of blocks then have 8 x 8 pixels
};

// Baseline JPEG without metadata: YCbCr 4:2:0, or grey.
std::string jpeg_of(const Photo& photo, const JpegSettings& settings);
// Lossless, for viewing.
std::string png_of(const Photo& photo);
void write_png(const std::string& path, const Photo& photo);

}  // namespace owt

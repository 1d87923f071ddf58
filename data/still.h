// The one picture inside an image file that OpenCV is to decode, told without decoding: its format and its size, so that
// a few bytes cannot claim all memory; and nothing else of the file, so that no other part of it is interpreted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace owt {

enum class PhotoFormat { kJpeg, kPng, kBmp, kWebp, kTiff };

// From the first bytes. Throws BadPhoto for an empty file, for formats that cannot be decoded and for what is no image.
PhotoFormat photo_format(std::string_view file);
const char* format_name(PhotoFormat format);  // "JPEG"

struct Still {
  int64_t height = 0, width = 0;  // of the whole image, as stored
  bool multiplied = false;        // colours by alpha
  int orientation = 1;            // as EXIF has it, 1 to 8
  std::string file{};             // a file of the same format with the picture alone; empty: the file as it is
  int64_t left = 0, top = 0;      // of the picture in the image: the first frame may cover a part of it only
  int64_t frame_height = 0, frame_width = 0;
};

// PNG (checksums of the parts that are kept are verified), BMP, WebP (the first frame), TIFF (the first page; zlib's checksums of its
// parts, if it has them, are verified). Throws BadPhoto for truncated and damaged files.
Still find_still(PhotoFormat format, std::string_view file);

// From the TIFF structure that EXIF data consist of; 1 where it says nothing usable.
int exif_orientation(std::string_view tiff);

}  // namespace owt

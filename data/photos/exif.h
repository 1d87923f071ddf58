// How EXIF data say that a picture is turned.
#pragma once

#include <cstdint>
#include <string_view>

namespace owt {

// What EXIF data begin with in JPEG; some writers leave it there in other formats.
constexpr std::string_view kExifPrefix{"Exif\0\0", 6};

// 1 to 8, from the TIFF structure that EXIF data consist of, with or without the prefix; 1 (upright) where it says
// nothing usable.
int64_t exif_orientation(std::string_view exif);
// The same, from the markers of a JPEG file.
int64_t jpeg_orientation(std::string_view file);

}  // namespace owt

// The orientation of an image in its EXIF data.
#pragma once

#include <cstdint>
#include <string_view>

namespace owt {

// Prefix of EXIF data in JPEG; some writers keep it in other formats.
constexpr std::string_view kExifPrefix{"Exif\0\0", 6};

// 1 to 8, from the TIFF structure of EXIF data, with or without the prefix; 1 (upright) if there is no usable value.
int64_t exif_orientation(std::string_view exif);
// The orientation from the markers of a JPEG file.
int64_t jpeg_orientation(std::string_view file);

}  // namespace owt

// How EXIF data say that a picture is turned.
#pragma once

#include <cstdint>
#include <string_view>

namespace owt {

// 1 to 8, from the TIFF structure that EXIF data consist of; 1 (upright) where it says nothing usable.
int64_t exif_orientation(std::string_view tiff);

}  // namespace owt

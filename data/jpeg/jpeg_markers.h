// Constants of the JPEG format (ITU-T T.81).
#pragma once

#include <array>
#include <cstdint>

#include "data/jpeg/jpeg_blocks.h"

namespace owt {

// The places in row order of the coefficients in zig-zag order.
constexpr std::array<uint8_t, kBlockSize> kZigzag = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                                     12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                                     35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                                     58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// Second bytes of markers.
constexpr int kSof0 = 0xC0, kDht = 0xC4, kRst0 = 0xD0, kEoi = 0xD9, kSos = 0xDA, kDqt = 0xDB, kDri = 0xDD,
              kApp14 = 0xEE;

}  // namespace owt

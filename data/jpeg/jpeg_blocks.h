// Makes pixels of the coefficients of baseline JPEG, bit for bit as libjpeg does it (JDCT_ISLOW, upsampling by
// repetition). Blocks are worked on sixteen at a time, each in a lane of its own, so that no step has to transpose.
#pragma once

#include <array>
#include <cstdint>

namespace owt {

constexpr int kBlockSide = 8;
constexpr int kBlockSize = kBlockSide * kBlockSide;
constexpr int kLanes = 16;

// Coefficients of sixteen blocks: at[k][lane] with k in row order. What comes after an end of block, or too much of
// damaged data, goes to the last place.
struct alignas(64) BlockGroup {
  int16_t at[kBlockSize + 1][kLanes];
};

// kLanes blocks, left to right, as 8 rows of 128 pixels. `quantization`: what a coefficient is multiplied by, in row
// order.
// Loeffler, Ligtenberg, Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications", 1989, in 13-bit fixed
// point.
void inverse_dct(const BlockGroup& group, const std::array<uint16_t, kBlockSize>& quantization, uint8_t* pixels,
                 int64_t row_bytes);

// What chroma adds to the luma of a row of pixels: cb and cr, `count` each, every one for `repeat` (1 or 2) pixels.
// Reads and writes up to 15 chroma places behind the last.
struct ChromaRow {
  int16_t *red, *green, *blue;
};
void upsample_chroma(const uint8_t* cb, const uint8_t* cr, int64_t count, int repeat, ChromaRow out);

// rgb: 3 bytes for each of the `count` pixels. Reads up to 15 elements behind each of the others.
void rgb_of(const uint8_t* luma, ChromaRow add, int64_t count, uint8_t* rgb);

}  // namespace owt

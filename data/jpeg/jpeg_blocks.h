// Converts the coefficients of baseline JPEG to pixels, with the same bits as libjpeg (JDCT_ISLOW, upsampling by
// repetition). Sixteen blocks are processed at a time, each in its own lane, so that no step has to transpose.
#pragma once

#include <array>
#include <cstdint>

namespace owt {

constexpr int kBlockSide = 8;
constexpr int kBlockSize = kBlockSide * kBlockSide;
constexpr int kLanes = 16;

// The number of units that cover `size`.
constexpr int64_t parts_of(int64_t size, int64_t unit) { return (size + unit - 1) / unit; }

// Coefficients of sixteen blocks: at[k][lane] with k in row order. Coefficients after an end of block, and excess ones
// of damaged data, go to the last place.
struct alignas(64) BlockGroup {
  int16_t at[kBlockSize + 1][kLanes];
};

// Transforms kLanes blocks, left to right, to 8 rows of 128 pixels. `quantization`: factors of the coefficients, in row
// order. Source: Loeffler, Ligtenberg, Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications", 1989, in
// 13-bit fixed point.
void inverse_dct(const BlockGroup& group, const std::array<uint16_t, kBlockSize>& quantization, uint8_t* pixels,
                 int64_t row_bytes);

// The contribution of chroma to a row of pixels: `count` values of cb and of cr, each for `repeat` (1 or 2) pixels.
// Reads and writes up to 15 chroma places after the last.
struct ChromaRow {
  int16_t *red, *green, *blue;
};
void upsample_chroma(const uint8_t* cb, const uint8_t* cr, int64_t count, int repeat, ChromaRow out);

// rgb: 3 bytes for each of the `count` pixels. Reads up to 15 elements after the end of each input.
void rgb_of(const uint8_t* luma, ChromaRow add, int64_t count, uint8_t* rgb);

}  // namespace owt

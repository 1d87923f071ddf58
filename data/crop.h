// The source pixels of an augmented image: arithmetic shared by Augmenter and the kernel of DeviceAugmenter. Everything
// is constexpr and uses only functions that device code can call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/core/uniform.h"

namespace owt {

// Images of in_height x in_width with `pad` more pixels on all four sides, from which out_height x out_width are
// cropped.
struct CropGeometry {
  int in_height, in_width, pad;
  int out_height, out_width;  // at most in_height + 2 * pad and in_width + 2 * pad
  // The padding shows the image reflected at its outermost pixels, as in PyTorch's "reflect"; `pad` is then below both
  // extents of the image. Otherwise it is zeros.
  bool reflects = false;
};

// The pixel that appears at this place of a row or column, whose padding reflects; `pixels`: their number.
constexpr int reflected(int place, int pixels) {
  return place < 0 ? -place : place < pixels ? place : 2 * (pixels - 1) - place;
}

// One crop. Rows and columns are numbered in the output, columns before mirroring.
struct Crop {
  int row_begin, row_end, column_begin, column_end;  // the part that shows pixels; the rest shows zeros
  int row_shift, column_shift;                       // from a place in the output to its place in the image
  int last_column;                                   // the output's
  bool mirrored;                                     // left to right, after cropping

  // The column, before mirroring, that appears at column x of the output.
  constexpr int unmirrored(int x) const { return mirrored ? last_column - x : x; }
};

// The crop with its upper left corner at (top, left) of the padded image.
constexpr Crop crop_at(const CropGeometry& g, int top, int left, bool mirrored) {
  Crop crop{};
  const int pad = g.reflects ? 0 : g.pad, shown = g.reflects ? 2 * g.pad : 0;
  crop.row_begin = std::clamp(pad - top, 0, g.out_height);
  crop.row_end = std::clamp(pad + g.in_height + shown - top, crop.row_begin, g.out_height);
  crop.column_begin = std::clamp(pad - left, 0, g.out_width);
  crop.column_end = std::clamp(pad + g.in_width + shown - left, crop.column_begin, g.out_width);
  crop.row_shift = top - g.pad;
  crop.column_shift = left - g.pad;
  crop.last_column = g.out_width - 1;
  crop.mirrored = mirrored;
  return crop;
}

// A crop from three random numbers: for the row, for the column, and one whose lowest bit mirrors if `mirror` is set.
constexpr Crop random_crop(const CropGeometry& g, uint32_t row_bits, uint32_t column_bits, uint32_t mirror_bits,
                           bool mirror) {
  return crop_at(g, below(g.in_height + 2 * g.pad - g.out_height + 1, row_bits),
                 below(g.in_width + 2 * g.pad - g.out_width + 1, column_bits), mirror && (mirror_bits & 1) != 0);
}

// A place of evaluation (View::place()): the centre, rounded up and left, a corner, or one pixel away from the centre.
constexpr Crop crop_of_place(const CropGeometry& g, int place, bool mirrored) {
  const int rows = g.in_height + 2 * g.pad - g.out_height, columns = g.in_width + 2 * g.pad - g.out_width;
  if (place >= 5) return crop_at(g, rows / 2 + (place == 5 ? -1 : 1), columns / 2 + (place == 5 ? -1 : 1), mirrored);
  const bool bottom = place >= 3, right = place == 2 || place == 4;
  return place == 0 ? crop_at(g, rows / 2, columns / 2, mirrored)
                    : crop_at(g, bottom ? rows : 0, right ? columns : 0, mirrored);
}

// A rectangle of an output image that becomes zeros; none if its height is 0.
struct Patch {
  int top = 0, left = 0, height = 0, width = 0;
  constexpr bool holds(int row, int column) const {
    return row >= top && row < top + height && column >= left && column < left + width;
  }
};
constexpr int kPatchTries = 10;

// One try of random erasing (Zhong et al. 2020, with the ranges of torchvision's RandomErasing) from four random
// numbers: 0.02 to 0.33 of the area, height by width 0.3 to 3.3 with a uniform logarithm. None if it does not fit. It
// is a template so that kernels may call it although the functions of <cmath> are not constexpr.
template <class Real = double>
constexpr Patch random_patch(int height, int width, uint32_t area_bits, uint32_t aspect_bits, uint32_t row_bits,
                             uint32_t column_bits) {
  constexpr Real kSmallest = 0.02, kLargest = 0.33, kLogAspect = -1.2039728043259361, kLogRange = 2.397895272798371;
  const Real area = (kSmallest + (kLargest - kSmallest) * static_cast<Real>(area_bits) * 0x1p-32) *
                    static_cast<Real>(height) * static_cast<Real>(width);
  const Real aspect = std::exp(kLogAspect + kLogRange * static_cast<Real>(aspect_bits) * 0x1p-32);
  const int high = static_cast<int>(std::sqrt(area * aspect) + 0.5);
  const int wide = static_cast<int>(std::sqrt(area / aspect) + 0.5);
  if (high >= height || wide >= width || high < 1 || wide < 1) return {};
  return {below(height - high + 1, row_bits), below(width - wide + 1, column_bits), high, wide};
}

// Cutout (DeVries and Taylor 2017): a square at a random place, all of it within the image as in airbench.
constexpr Patch random_square(int height, int width, int side, uint32_t row_bits, uint32_t column_bits) {
  return {below(height - side + 1, row_bits), below(width - side + 1, column_bits), side, side};
}

}  // namespace owt

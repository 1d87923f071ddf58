// Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019): pairs of images and of their labels are mixed.
//
// Rows 2i and 2i + 1 of a step are a pair: the order of an epoch is shuffled, so that neighbours are random pairs.
// (This is timm's "pair" mode; without a shuffled order the pairs are always the same.) The last row of an odd step is
// unchanged. With s drawn from Beta(alpha, alpha) for each pair:
//   mixup    image = s * own + (1 - s) * other's, in units of the output;
//   CutMix   the two images exchange a rectangle of sqrt(1 - s) of height and width, with its middle anywhere in the
//            image and clipped at the border; s becomes the share of the own pixels.
// If both are on, one of them is chosen at random for each pair. The label is the own label with share s, and the other
// image's label with share 1 - s. Random numbers depend on (seed, epoch, index of the first image in its data set)
// only, RandomStream::kAugment, so that two ranks with one row each of a pair draw the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "data/crop.h"
#include "data/dataset.h"
#include "src/core/row_label.h"

namespace owt {

struct MixSettings {
  double mixup = 0, cutmix = 0;  // alpha; 0: off
  bool any() const { return mixup > 0 || cutmix > 0; }
};

struct PairMix {
  int32_t share = kShareUnits;  // weight of each row's own image and label
  Patch cut{};                  // the exchanged rectangle; height 0: all pixels are mixed
  constexpr bool mixes() const { return share < kShareUnits; }
  constexpr float own() const { return static_cast<float>(share) / static_cast<float>(kShareUnits); }
  constexpr float other() const { return static_cast<float>(kShareUnits - share) / static_cast<float>(kShareUnits); }

  static constexpr int32_t kShareUnits = RowLabel::kShareUnits;
};

// image: shape of the output, H x W x C. sample: index of the first image. In evaluation nothing is mixed.
PairMix draw_mix(const MixSettings& settings, const Shape& image, const View& view, int64_t sample);

// Mixes two images of H x W x C values, f32 or bf16. Each result is rounded separately.
template <class T>
void mix_images(const PairMix& mix, const Shape& image, T* first, T* second);

// Writes a mixed row of LabelRows, in which the class with the larger share is first, from the rows of write_label()
// (data/dataset.h) of its own image and of the other. The targets are mixed with the same shares.
void write_mixed_label(const PairMix& mix, const int32_t* own, const int32_t* other, int64_t targets, int32_t* to);

// The given rows of a step, extended to whole pairs if `pairs`.
constexpr Slice whole_pairs(const Slice& rows, int64_t step_rows, bool pairs) {
  if (!pairs || rows.begin == rows.end) return rows;
  return {rows.begin / 2 * 2, std::min(step_rows, (rows.end + 1) / 2 * 2)};
}

}  // namespace owt

// A made-up data set for tests, first steps and timing: ten classes of coloured shapes.
//
// Each image shows one shape, which alone is the class: disc, ring, square, triangle, cross, star, horizontal, vertical
// or diagonal bars, checkerboard. Colour of shape and background, a colour gradient, position, size, phase of the bars
// and pixel noise are random and independent of the class. So no pixel tells the class: a linear classifier stays near
// chance, a small convolutional network does not. Image i is a function of (seed, split, i, side, classes); its label
// is i modulo classes.
#pragma once

#include <cstdint>

#include "data/memory_dataset.h"

namespace owt {

constexpr int kSyntheticClasses = 10;

struct SyntheticSettings {
  int64_t size = 0;                 // images, >= 1
  int64_t side = 32;                // pixels, >= 8
  int classes = kSyntheticClasses;  // 1 to 10: the first of the list above
  uint64_t seed = 1;
  Split split = Split::kTrain;
};

// Images of side x side x 3, drawn by the calling rank's team of threads and kept in memory.
class SyntheticDataset : public MemoryDataset {
 public:
  // Throws Error for settings out of range.
  explicit SyntheticDataset(const SyntheticSettings& settings);
};

}  // namespace owt

// A synthetic data set for tests, first steps and timing: ten classes of coloured shapes.
//
// Each image shows one shape, which is the class: disc, ring, square, triangle, cross, star, horizontal, vertical or
// diagonal bars, checkerboard. Colour of shape and background, a colour gradient, position, size, phase of the bars and
// pixel noise are random and independent of the class. No single pixel indicates the class: a linear classifier stays
// near chance, a small convolutional network does not. Image i depends on (seed, split, i, side, classes, channels)
// only; its label is i modulo classes. Channel c shows red, green or blue (c modulo 3) with noise of its own; with one
// or two channels the shape differs from its background in these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/memory_dataset.h"
#include "data/photos/photo.h"

namespace owt {

constexpr int kSyntheticClasses = 10;

struct SyntheticSettings {
  int64_t size = 0;                 // images, >= 1
  int64_t side = 32;                // pixels, >= 8
  int classes = kSyntheticClasses;  // 1 to 10: the first of the list above
  uint64_t seed = 1;
  Split split = Split::kTrain;
  int64_t channels = 3;  // >= 1
};

// Images of side x side x channels, drawn by the calling rank's team of threads and kept in memory.
class SyntheticDataset : public MemoryDataset {
 public:
  // Throws Error for settings out of range.
  explicit SyntheticDataset(const SyntheticSettings& settings);
};

constexpr int kSyntheticPhotoClasses = 10 * kSyntheticClasses;

// The same shapes in scenes that vary as photographs do: 128 to 400 pixels a side, portrait or landscape, the shape
// large or small in front of dots of other colours. Class k shows shape k modulo 10. With more than ten classes, k / 10
// is the shape's colour, red to white. Photograph i depends on (seed, split, i, classes) only; its class is i modulo
// classes.
struct SyntheticPhotos {
  int classes = kSyntheticClasses;  // 1 to 100
  uint64_t seed = 1;
  Split split = Split::kTrain;

  int label(int64_t index) const { return static_cast<int>(index % classes); }
  Photo draw(int64_t index) const;
  std::vector<std::string> class_names() const;  // disc, ring ...; red_disc, red_ring ... with more than ten classes
};

}  // namespace owt

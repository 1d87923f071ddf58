// A picture of random training samples as a network sees them.
#pragma once

#include <cstdint>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/photos/photo.h"

namespace owt {

struct ContactSheet {
  int64_t samples = 64;  // at most; each at most once
  int64_t columns = 8;
  bool names = false;  // each tile's class below it; small tiles are enlarged, so that names can be read
  uint64_t seed = 1;   // chooses the samples and their augmentation
};

// Tiles in rows, a gap around each. Every tile went through the augmentation of training (cut, mirrored, colour
// changed, erased, neighbours mixed) and back from normalised values to colours; where a tile shows padding it is
// mid-grey, as the network sees the mean there, and what is erased has the mean's colour. `statistics`: as for
// Augmenter. Images of 1 or 3 channels.
Photo contact_sheet(const Dataset& dataset, const AugmentSettings& augment, const DatasetStatistics& statistics,
                    const ContactSheet& sheet);

}  // namespace owt

// A picture of random training samples as the network sees them.
#pragma once

#include <cstdint>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/photos/photo.h"

namespace owt {

struct ContactSheet {
  int64_t samples = 64;  // maximum; each sample appears at most once
  int64_t columns = 8;
  bool names = false;  // writes each tile's class below it; small tiles are enlarged to make names readable
  uint64_t seed = 1;   // selects the samples and their augmentation
};

// Tiles in rows with gaps. Every tile is augmented as in training (crop, mirror, colour, erasing, mixing of neighbours)
// and converted back from normalised values to colours. Padding appears as mid-grey, because the network sees the mean
// there, and erased parts have the mean's colour. `statistics`: as for Augmenter. Images have 1 or 3 channels.
Photo contact_sheet(const Dataset& dataset, const AugmentSettings& augment, const DatasetStatistics& statistics,
                    const ContactSheet& sheet);

}  // namespace owt

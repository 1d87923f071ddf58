// Training images that are held out of training, to choose by: a validation split where the data set has none.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace owt {

struct HeldOut {
  std::shared_ptr<const Dataset> train, validation;  // each in the order of the data set
};

// wanted: a share of the images, below 1, or a number of them. Every class gives in proportion to its images, whole
// ones (by largest remainders). Which ones is a function of the images' number, their labels and the seed, and of
// nothing else. Throws Error where that comes to no image, or leaves none to train on.
HeldOut hold_out(const std::shared_ptr<const Dataset>& images, double wanted, uint64_t seed);

}  // namespace owt

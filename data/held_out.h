// Training images that are held out of training, to choose by: a validation split where the data set has none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// Whether each of the images with these labels is held out. wanted: a share of the images, below 1, or a number of
// them. Every class gives in proportion to its images, whole ones (by largest remainders). Which ones is a function of
// the images' number, their labels and the seed, and of nothing else. Throws Error naming `setting` where that comes to
// no image, or leaves none to train on.
std::vector<bool> images_to_hold_out(const std::vector<int32_t>& labels, double wanted, uint64_t seed,
                                     const std::string& setting);

struct HeldOut {
  std::shared_ptr<const Dataset> train, validation;  // each in the order of the data set
};

// Those of images_to_hold_out(), for data.validation.
HeldOut hold_out(const std::shared_ptr<const Dataset>& images, double wanted, uint64_t seed);

}  // namespace owt

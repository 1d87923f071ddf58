// Some images of a data set. Training images that are held out for validation if the data set has no validation split.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// The images with these numbers, which increase.
std::shared_ptr<const Dataset> some_of(std::shared_ptr<const Dataset> images, std::vector<int64_t> numbers);

// Whether each of the images with these labels is held out. wanted: a fraction of the images (below 1), or their
// number. Every class contributes in proportion to its images, rounded by largest remainders. A fraction takes no class
// its last image; if that makes it impossible, fewer images are held out. The choice depends only on the number of
// images, their labels and the seed. Throws Error naming `setting` if no image would be held out, or none left to train
// on.
std::vector<bool> images_to_hold_out(const std::vector<int32_t>& labels, double wanted, uint64_t seed,
                                     const std::string& setting);

struct HeldOut {
  std::shared_ptr<const Dataset> train, validation;  // each in the order of the data set
};

// The images of images_to_hold_out(), for data.validation.
HeldOut hold_out(const std::shared_ptr<const Dataset>& images, double wanted, uint64_t seed);

}  // namespace owt

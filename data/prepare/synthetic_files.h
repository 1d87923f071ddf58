// The made-up data set (data/synthetic.h) as files.
#pragma once

#include <cstdint>
#include <string>

namespace owt {

// Writes a synthetic data set in the CIFAR-10 binary format: five training files of nearly equal size, a test file and
// the class names, in dir/cifar-10-batches-bin. The folder appears as a whole or not at all. Returns its path. Throws
// Error: fewer than 5 training images or 1 test image; a folder not writable; a data set that is there already, unless
// `force`, which replaces a folder that holds nothing but files of this format.
std::string prepare_synthetic(const std::string& dir, int64_t train_images, int64_t test_images, uint64_t seed,
                              bool force = false);

}  // namespace owt

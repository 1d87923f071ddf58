// The made-up data set (data/synthetic.h) as files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/synthetic.h"

namespace owt {

// Writes a synthetic data set in the CIFAR-10 binary format: five training files of nearly equal size, a test file and
// the class names, in dir/cifar-10-batches-bin. The folder appears as a whole or not at all. Returns its path. Throws
// Error: fewer than 5 training images or 1 test image; a folder not writable; a data set that is there already, unless
// `force`, which replaces a folder that holds nothing but files of this format.
std::string prepare_synthetic(const std::string& dir, int64_t train_images, int64_t test_images, uint64_t seed,
                              bool force = false);

// Writes `count` of the photographs as dir/SPLIT/CLASS/0000012.jpg, where SPLIT is train or val: what owt prepare
// folder and imagenet read. dir/SPLIT appears as a whole or not at all. Drawn on `threads` threads; go_on(done) is
// asked now and then, and where it says no nothing is left and the result is false. Throws Error: no image, classes out
// of range, dir/SPLIT there already, a folder not writable.
bool write_synthetic_photos(const std::string& dir, const SyntheticPhotos& photos, int64_t count, int threads,
                            const std::function<bool(int64_t)>& go_on);

}  // namespace owt

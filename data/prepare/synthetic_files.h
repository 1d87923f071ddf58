// Writes the synthetic data set (data/synthetic.h) as files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/synthetic.h"

namespace owt {

// Writes a synthetic data set in the CIFAR-10 binary format to dir/cifar-10-batches-bin: five training files of nearly
// equal size, a test file and the class names. The folder is created atomically. Returns its path. Throws Error for
// fewer than 5 training images or 1 test image, for a folder that is not writable, and for a data set that already
// exists, unless `force`. `force` replaces a folder that holds only files of this format.
std::string prepare_synthetic(const std::string& dir, int64_t train_images, int64_t test_images, uint64_t seed,
                              bool force = false);

// Writes `count` photographs as dir/SPLIT/CLASS/0000012.jpg, where SPLIT is train or val, for owt prepare folder and
// imagenet. dir/SPLIT is created atomically. Drawn on `threads` threads. keep_going(done) is called regularly; if it
// returns false, nothing remains and the result is false. Throws Error for no image, classes out of range, an existing
// dir/SPLIT, or a folder that is not writable.
bool write_synthetic_photos(const std::string& dir, const SyntheticPhotos& photos, int64_t count, int threads,
                            const std::function<bool(int64_t)>& keep_going);

}  // namespace owt

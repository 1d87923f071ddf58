// GPU memory of batches, computed without a GPU.
#pragma once

#include <cstdint>

#include "data/augment.h"

namespace owt {

constexpr int64_t kBatchesSent = 3;   // batches of bytes: two ahead of the batch from which images are made
constexpr int64_t kEditedImages = 2;  // bytes per row whose bytes are changed: input and output of an operation
constexpr int64_t kBatchesMade = 2;   // batches of images for the network, used alternately
constexpr int64_t kRowsBeside = 2;    // rows of other ranks that complete pairs: at most one at either end

struct BatchMemory {
  int64_t row_bytes = 0, bytes = 0;  // per row of a rank's largest step, and independent of the number of rows
};

// GPU memory that sent batches (data/streamed_batches.cu) need in addition to the images of kBatchesMade: the data
// set's bytes of images (`image`), the memory for changing them in training, labels, and the memory for mixing. `out`:
// an image for the network, with `value_bytes` bytes per value; `targets`: Dataset::targets(). Tables of means and the
// like, bytes of other ranks' rows, and images that the GPU decodes (data/jpeg/device_jpeg.h) are not counted.
BatchMemory memory_beside_images(const AugmentSettings& augment, const Shape& image, const Shape& out,
                                 int64_t value_bytes, int64_t targets = 0);

}  // namespace owt

// What batches take of a GPU's memory, known before there is one.
#pragma once

#include <cstdint>

#include "data/augment.h"

namespace owt {

constexpr int64_t kBatchesSent = 3;   // of bytes: two ahead of the one that images are made from
constexpr int64_t kEditedImages = 2;  // of bytes, of a row whose bytes are changed: what an operation reads and writes
constexpr int64_t kBatchesMade = 2;   // of images as the network reads them, in turn
constexpr int64_t kRowsBeside = 2;    // of other ranks at most that make up whole pairs, one at either end

struct BatchMemory {
  int64_t row_bytes = 0, bytes = 0;  // for each row of a rank's largest step, and however many these are
};

// What batches that are sent (data/streamed_batches.cu) take beside the images of kBatchesMade: bytes of images as the
// data set gives them, `image`, what changes these in training, labels, and what images are mixed with. `out`: an image
// as the network reads it, of values of so many bytes. Tables of means and the like are not counted, nor bytes of other
// ranks' rows.
BatchMemory memory_beside_images(const AugmentSettings& augment, const Shape& image, const Shape& out,
                                 int64_t value_bytes);

}  // namespace owt

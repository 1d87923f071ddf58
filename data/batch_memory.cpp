#include "data/batch_memory.h"

namespace owt {

BatchMemory memory_beside_images(const AugmentSettings& augment, const Shape& image, const Shape& out,
                                 int64_t value_bytes, int64_t targets) {
  constexpr int64_t kLabel = 4, kSample = 8, kPair = sizeof(PairMix);
  const bool mixes = augment.mix.any();
  BatchMemory memory;
  memory.row_bytes = kBatchesSent * (image.elements() + kLabel * (1 + targets) + kSample);
  memory.row_bytes += kBatchesMade * kLabel * LabelRows{mixes, targets}.numbers();
  if (augment.edits()) memory.row_bytes += kEditedImages * image.elements();
  if (!mixes) return memory;
  memory.row_bytes += kBatchesMade * kPair / 2;
  memory.bytes = kBatchesMade * kRowsBeside * kPair + kRowsBeside * out.elements() * value_bytes;
  return memory;
}

}  // namespace owt

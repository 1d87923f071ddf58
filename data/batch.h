// One rank's rows of one step.
#pragma once

#include <cstdint>

#include "src/core/tensor.h"

namespace owt {

struct Batch {
  Tensor images;      // rows x H x W x C, f32, augmented and normalised
  Tensor labels;      // rows, i32
  int64_t epoch = 0;  // from 0
  int64_t step_in_epoch = 0;
  int64_t step_rows = 0;  // rows of the step over all ranks; the last step of an epoch may have fewer
};

// Where steps come from.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The next batch; its tensors stay as they are until the call after. Throws what went wrong in the loader
  // threads.
  virtual const Batch& next() = 0;
  virtual int64_t steps_per_epoch() const = 0;
};

}  // namespace owt

// One rank's rows of one step.
#pragma once

#include <cstdint>

#include "src/core/tensor.h"

namespace owt {

struct Batch {
  Tensor images;      // rows x H x W x C, augmented and normalised, f32 or bf16; or u8 as read
  Tensor labels;      // rows, i32
  Tensor samples;     // with images as read only: rows, i64, the places of the images in their data set
  int64_t epoch = 0;  // from 0
  int64_t step_in_epoch = 0;
  int64_t step_rows = 0;  // rows of the step over all ranks; the last step of an epoch may have fewer
  int view = 0;           // in evaluation: View::number
};

// Where steps come from.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The next batch. Work queued on the stream after this call sees it; the next call's work on the same stream may
  // overwrite it, and a batch on the CPU stays as it is until that call. Throws what went wrong in the loader threads.
  virtual const Batch& next(const Stream& stream) = 0;
  virtual int64_t steps_per_epoch() const = 0;  // batches; several views of a step are several
};

}  // namespace owt

// One rank's rows of one step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "src/core/image_layout.h"
#include "src/core/tensor.h"

namespace owt {

struct Batch {
  // rows x H x W x C, augmented and normalised, f32 or bf16, or the same in another layout (BatchSource::lay_out()); or
  // u8 as read
  Tensor images;
  Tensor labels;      // rows, i32; x RowLabel::kMixedNumbers where the augmenter mixes images
  Tensor samples;     // with images as read only: rows, i64, the places of the images in their data set
  int64_t epoch = 0;  // from 0
  int64_t step_in_epoch = 0;
  int64_t step_rows = 0;  // rows of the step over all ranks; the last step of an epoch may have fewer
  int view = 0;           // in evaluation: View::number
};

// What the threads that make batches did: at work, and waiting for what they read. Seconds of all of them together.
struct LoaderTimes {
  double work_s = 0, wait_s = 0;

  bool operator==(const LoaderTimes&) const = default;
};

// Where steps come from.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The next batch. Work queued on the stream after this call sees it; it may be overwritten behind what is queued
  // there when the next call comes, and a batch on the CPU stays as it is until that call. All calls name the same
  // stream. Throws what went wrong in the loader threads.
  virtual const Batch& next(const Stream& stream) = 0;
  virtual int64_t steps_per_epoch() const = 0;  // batches; several views of a step are several

  // The layout that whoever reads images of a step of so many rows likes best; none: plain images.
  using LayoutOf = std::function<std::optional<ImageLayout>(int64_t step_rows)>;
  // Asks for the layout, in the calls of next(), for batches made from now on. A source may go on with plain images.
  virtual void lay_out(LayoutOf layout) { static_cast<void>(layout); }

  // Up to now; zeros where no threads make them, or it is not measured.
  virtual LoaderTimes times() const { return {}; }
};

}  // namespace owt

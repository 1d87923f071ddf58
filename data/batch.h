// The rows of one step that belong to one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "src/core/image_layout.h"
#include "src/core/row_label.h"
#include "src/core/tensor.h"

namespace owt {

class DecoderTrial;

// The shape of Batch::labels.
inline Shape shape_of_labels(const LabelRows& of, int64_t rows) {
  return of.numbers() > 1 ? Shape{rows, of.numbers()} : Shape{rows};
}

struct Batch {
  // rows x H x W x C, augmented and normalised, f32 or bf16, possibly in another layout (BatchSource::lay_out()); or u8
  // as read
  Tensor images;
  Tensor labels;      // rows of LabelRows, i32: mixed if the augmenter mixes images; with the data set's targets
  Tensor samples;     // only with images as read: rows, i64, each a SampleDraw (data/order.h)
  Tensor files;       // only if `images` may hold JPEG files: rows x sizeof(FileRow), u8
  Tensor hint;        // Pass::hint for the rows; undefined: there is none
  int64_t epoch = 0;  // from 0
  int64_t step_in_epoch = 0;
  int64_t step_rows = 0;  // rows of the step over all ranks; the last step of an epoch may have fewer
  int view = 0;           // in evaluation: View::number
};

// Time of the threads that make batches, working and waiting for reads: the sum over all threads in seconds.
struct LoaderTimes {
  double work_s = 0, wait_s = 0;

  bool operator==(const LoaderTimes&) const = default;
};

// A source of steps.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The next batch. Work queued on the stream after this call sees it. After the next call it may be overwritten once
  // the work queued until then is done; a batch on the CPU is valid until that call. All calls pass the same stream.
  // Throws the errors of the loader threads.
  virtual const Batch& next(const Stream& stream) = 0;
  virtual int64_t steps_per_epoch() const = 0;  // batches; each view of a step is one

  // The layout of images that the reader of a step of `step_rows` rows prefers; none: plain images.
  using LayoutOf = std::function<std::optional<ImageLayout>(int64_t step_rows)>;
  // Requests this layout, evaluated in next(), for all later batches. A source may ignore it and make plain images.
  virtual void lay_out(LayoutOf layout) { static_cast<void>(layout); }

  // The trial that chooses the decoder; null: there is none.
  virtual DecoderTrial* decoder_trial() { return nullptr; }

  // Total until this call; zeros if no threads make the batches, or if it is not measured.
  virtual LoaderTimes times() const { return {}; }
};

}  // namespace owt

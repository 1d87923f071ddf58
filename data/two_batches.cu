#include "data/two_batches.h"

#include "src/core/check.h"

namespace owt {

TwoBatches::TwoBatches(const Augmenter& augmenter, Precision precision, int64_t most_rows)
    : augmenter_(augmenter, most_rows),
      image_(augmenter.out_shape()),
      dtype_(activation_type(precision)),
      most_rows_(most_rows) {
  for (Place& place : places_) place.labels = Tensor({most_rows}, DType::kI32, Device::kCuda);
}

TwoBatches::~TwoBatches() {
  try {
    maker_.synchronize();   // it reads and writes memory that goes now
  } catch (const Error&) {  // the GPU has failed: nothing is read any more, and whoever uses the batches will know
  }
}

// What the second batch needs is made with the first one, when no step that reads such images runs.
Tensor TwoBatches::images(Place& place, int64_t rows, const std::optional<ImageLayout>& layout) {
  const Shape shape = layout ? layout->batch_of(rows) : image_.batch_of(rows);
  for (Place& each : places_) {
    Tensor& memory = each.images[shape.row_elements()];
    if (!memory.defined()) memory = Tensor({most_rows_ * shape.row_elements()}, dtype_, Device::kCuda);
  }
  return place.images[shape.row_elements()].part(0, shape);
}

Tensor TwoBatches::make(const Batch& facts, const Tensor& pixels, DeviceAugmenter::Pixels which, const Tensor& samples,
                        const View& view) {
  OWT_CHECK(made_ - handed_ < 2, "a batch would be overwritten before it is handed out");
  Place& next = place(made_);
  const int64_t rows = samples.shape().rows();
  const std::optional<ImageLayout> layout = layout_ && rows > 0 ? layout_(facts.step_rows) : std::nullopt;
  maker_.wait(next.used);
  next.batch = facts;
  next.batch.images = images(next, rows, layout);
  next.batch.labels = next.labels.rows(0, rows);
  next.batch.samples = {};
  augmenter_.run(pixels, which, samples, view, layout, next.batch.images, maker_);
  return next.batch.labels;
}

void TwoBatches::made() { place(made_++).made = maker_.record(); }

const Batch& TwoBatches::hand_out(const Stream& stream) {
  OWT_CHECK(!empty(), "no batch was made");
  if (handed_ > 0) place(handed_ - 1).used = stream.record();
  Place& next = place(handed_++);
  stream.wait(next.made);
  return next.batch;
}

}  // namespace owt

#include "data/two_batches.h"

#include <algorithm>

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/core/poison.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Rows in the order of the step, of which other ranks' rows are stored separately.
template <class T>
struct PairedRows {
  T *own, *beside;
  int64_t before, count, elements;  // rows before the own rows (one at most); own rows; elements of an image
  __device__ T* at(int64_t row) const {
    if (row < before) return beside;
    return row < before + count ? own + (row - before) * elements : beside + elements;
  }
};

// Mixes one pair per blockIdx.x, with the operations of mix_images(), each rounded separately.
template <class T>
__global__ void mix_pairs(const PairMix* pairs, const PairedRows<T> rows, const ImageLayout layout) {
  wait_for_previous_kernel();
  const PairMix mix = pairs[blockIdx.x];
  if (!mix.mixes()) return;
  T *first = rows.at(2 * int64_t{blockIdx.x}), *second = rows.at(2 * int64_t{blockIdx.x} + 1);
  const float own = mix.own(), other = mix.other();
  const int64_t line = int64_t{layout.in_w} * layout.in_c, packed_line = int64_t{layout.width} * layout.channels;
  for (int64_t e = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; e < rows.elements;
       e += int64_t{gridDim.y} * blockDim.x) {
    const float a = to_float(first[e]), b = to_float(second[e]);
    float of_first = __fadd_rn(__fmul_rn(a, own), __fmul_rn(b, other));
    float of_second = __fadd_rn(__fmul_rn(b, own), __fmul_rn(a, other));
    if (mix.cut.height > 0) {
      const auto column = static_cast<int>(e % packed_line);
      const int64_t source =
          layout.source(static_cast<int>(e / packed_line), column / layout.channels, column % layout.channels);
      if (source < 0) continue;
      const bool cut = mix.cut.holds(static_cast<int>(source / line), static_cast<int>(source % line) / layout.in_c);
      of_first = cut ? b : a, of_second = cut ? a : b;
    }
    first[e] = from_float<T>(of_first), second[e] = from_float<T>(of_second);
  }
}

constexpr unsigned kMostParts = 64;

}  // namespace

TwoBatches::TwoBatches(const Augmenter& augmenter, Precision precision, int64_t most_rows, int64_t targets)
    : augmenter_(augmenter, most_rows),
      mix_(augmenter.mix()),
      label_rows_{mix_.any(), targets},
      image_(augmenter.out_shape()),
      dtype_(activation_type(precision)),
      most_rows_(most_rows) {
  const Shape labels = shape_of_labels(label_rows_, most_rows);
  const int64_t pairs = most_rows / 2 + kRowsBeside, bytes = static_cast<int64_t>(sizeof(PairMix));
  for (BatchBuffers& buffers : buffers_) {
    buffers.labels = Tensor(labels, DType::kI32, Device::kCuda);
    if (!mix_.any()) continue;
    buffers.host_labels = Tensor::shared_with(Device::kCuda, labels, DType::kI32);
    buffers.host_pairs = Tensor::shared_with(Device::kCuda, {pairs, bytes}, DType::kU8);
    buffers.pairs = Tensor({pairs, bytes}, DType::kU8, Device::kCuda);
  }
}

TwoBatches::~TwoBatches() {
  try {
    maker_.synchronize();  // it reads and writes memory that is freed here
    // The GPU has failed: nothing is read, and users of the batches will get the error.
  } catch (const Error&) {
  }
}

// Memory of the second batch is allocated with the first one's, when no step that reads such images runs.
Tensor TwoBatches::images(BatchBuffers& buffers, int64_t rows, const std::optional<ImageLayout>& layout) {
  const Shape shape = layout ? layout->batch_of(rows) : image_.batch_of(rows);
  for (BatchBuffers& each : buffers_) {
    Tensor& memory = each.images[shape.row_elements()];
    if (!memory.defined()) memory = Tensor({most_rows_ * shape.row_elements()}, dtype_, Device::kCuda);
  }
  return buffers.images[shape.row_elements()].part(0, shape);
}

TwoBatches::BatchBuffers& TwoBatches::begin(const Batch& facts, int64_t rows,
                                            const std::optional<ImageLayout>& layout) {
  OWT_CHECK(made_ - handed_ < kBatchesMade, "a batch would be overwritten before it is handed out");
  BatchBuffers& next = buffers_of(made_);
  maker_.wait(next.used);
  next.batch = facts;
  next.batch.images = images(next, rows, layout);
  next.batch.labels = next.labels.rows(0, rows);
  next.batch.samples = {};
  return next;
}

Tensor TwoBatches::make(const Batch& facts, const Tensor& pixels, DeviceAugmenter::Pixels which, const Tensor& samples,
                        const View& view) {
  const int64_t rows = samples.shape().rows();
  const std::optional<ImageLayout> layout = layout_ && rows > 0 ? layout_(facts.step_rows) : std::nullopt;
  BatchBuffers& next = begin(facts, rows, layout);
  augmenter_.run(pixels, which, samples, view, layout, next.batch.images, maker_);
  return next.batch.labels;
}

// How each pair is mixed, and the resulting labels.
void TwoBatches::describe_pairs(BatchBuffers& buffers, const RowsOfPairs& rows, const View& view) const {
  buffers.made.wait();  // long done; its copies read the memory written here
  const int64_t all = std::ssize(rows.draws);
  const auto label_of = [&](int64_t row) { return rows.labels.data() + row * (1 + label_rows_.targets); };
  for (int64_t row = 0; row < all; ++row) {
    const int64_t beside = std::min(row ^ 1, all - 1), first = row / 2 * 2;
    const auto at = [&](int64_t i) { return static_cast<size_t>(i); };
    const SampleDraw& draw = rows.draws[at(first)];
    View view_of_pair = view;
    view_of_pair.epoch = draw.pass;
    PairMix mix;
    if ((row ^ 1) < all) mix = draw_mix(mix_, image_, view_of_pair, draw.sample);
    reinterpret_cast<PairMix*>(buffers.host_pairs.raw())[row / 2] = mix;
    if (row >= rows.before && row < rows.before + rows.count)
      write_mixed_label(mix, label_of(row), label_of(beside), label_rows_.targets,
                        buffers.host_labels.data<int32_t>() + (row - rows.before) * label_rows_.numbers());
  }
}

void TwoBatches::make_mixed(const Batch& facts, const Tensor& pixels, DeviceAugmenter::Pixels which,
                            const Tensor& samples, const RowsOfPairs& rows, const View& view) {
  const std::optional<ImageLayout> layout = layout_ && rows.count > 0 ? layout_(facts.step_rows) : std::nullopt;
  BatchBuffers& next = begin(facts, rows.count, layout);
  if (rows.count == 0) return;
  describe_pairs(next, rows, view);
  next.batch.labels.copy_from(next.host_labels.rows(0, rows.count), maker_);
  next.pairs.copy_from(next.host_pairs, maker_);

  const ImageLayout there = layout.value_or(ImageLayout::plain(image_));
  const Shape one = layout ? layout->batch_of(1) : image_.batch_of(1);
  Tensor& beside = beside_[one.elements()];
  if (!beside.defined()) beside = Tensor({kRowsBeside * one.elements()}, dtype_, Device::kCuda);
  const auto augment = [&](int64_t begin, int64_t end, Tensor images) {
    const bool of_set = which == DeviceAugmenter::Pixels::kOfSet;
    augmenter_.run(of_set ? pixels : pixels.rows(begin, end), which, samples.rows(begin, end), view, layout, images,
                   maker_);
  };
  const int64_t all = std::ssize(rows.draws), end = rows.before + rows.count;
  augment(rows.before, end, next.batch.images);
  if (rows.before > 0) augment(0, 1, beside.part(0, one));
  if (end < all) augment(end, all, beside.part(one.elements(), one));
  if (!view.training) return;
  const auto parts = std::min<unsigned>(kMostParts, blocks_for(one.elements()));
  with_element(dtype_, [&](auto element) {
    using T = decltype(element);
    const PairedRows<T> at{next.batch.images.data<T>(), beside.data<T>(), rows.before, rows.count, one.elements()};
    launch(mix_pairs<T>, dim3(static_cast<unsigned>(all / 2), parts), dim3(kBlockThreads), maker_,
           reinterpret_cast<const PairMix*>(next.pairs.raw()), at, there);
  });
}

void TwoBatches::made() { buffers_of(made_++).made = maker_.record(); }

const Batch& TwoBatches::hand_out(const Stream& stream) {
  OWT_CHECK(!empty(), "no batch was made");
  if (handed_ > 0) {
    BatchBuffers& before = buffers_of(handed_ - 1);
    for (const Tensor& part : {before.batch.images, before.batch.labels}) poison(part, stream);
    before.used = stream.record();
  }
  BatchBuffers& next = buffers_of(handed_++);
  stream.wait(next.made);
  return next.batch;
}

}  // namespace owt

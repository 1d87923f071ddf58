// Two alternating batches on the GPU: steps read one of them while the next is made on a separate stream. Images are
// mixed in pairs (data/mix.h) if the augmenter's settings say so. For .cu files.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "data/batch.h"
#include "data/batch_memory.h"
#include "data/device_augment.h"
#include "data/order.h"

namespace owt {

// The rows of a batch, and rows of other ranks that complete pairs with them; on the host.
struct RowsOfPairs {
  int64_t before = 0, count = 0;  // rows of others before the batch's; rows of the batch
  std::vector<SampleDraw> draws;  // what all rows show
  std::vector<int32_t> labels;    // rows of write_label() of all rows
};

class TwoBatches {
 public:
  // most_rows: the maximum of a batch. targets: Dataset::targets().
  TwoBatches(const Augmenter& augmenter, Precision precision, int64_t most_rows, int64_t targets);
  ~TwoBatches();  // waits for batches being made

  // BatchSource::lay_out(): for batches made after the call.
  void lay_out(BatchSource::LayoutOf layout) { layout_ = std::move(layout); }

  const Stream& maker() const { return maker_; }  // the stream on which batches are made

  // Starts to make the next batch from `facts`, whose tensors are not used; all earlier batches except one must have
  // been handed out. Images are made from pixels and samples, as in DeviceAugmenter. Returns the memory for labels,
  // which the caller writes. Then the caller calls made().
  Tensor make(const Batch& facts, const Tensor& pixels, DeviceAugmenter::Pixels which, const Tensor& samples,
              const View& view);
  // For an augmenter that mixes images, with labels: pixels (of a batch) and samples cover all rows.
  void make_mixed(const Batch& facts, const Tensor& pixels, DeviceAugmenter::Pixels which, const Tensor& samples,
                  const RowsOfPairs& rows, const View& view);
  void made();

  bool empty() const { return made_ == handed_; }
  // The oldest batch that was not handed out yet; work queued on the stream after the call sees it. The previous one
  // may be overwritten after the work queued on the stream at the time of the call.
  const Batch& hand_out(const Stream& stream);

 private:
  struct BatchBuffers {
    // Memory by elements of an image. It is never freed, because freeing may wait for the GPU in the middle of a step.
    std::map<int64_t, Tensor> images;
    Tensor labels;
    Tensor host_labels, host_pairs, pairs;  // for mixed images: a PairMix per pair
    Batch batch;
    Event made, used;
  };
  BatchBuffers& buffers_of(int64_t number) { return buffers_[number % kBatchesMade]; }
  Tensor images(BatchBuffers& buffers, int64_t rows, const std::optional<ImageLayout>& layout);
  BatchBuffers& begin(const Batch& facts, int64_t rows, const std::optional<ImageLayout>& layout);
  void describe_pairs(BatchBuffers& buffers, const RowsOfPairs& rows, const View& view) const;

  DeviceAugmenter augmenter_;
  MixSettings mix_;
  LabelRows label_rows_;
  Shape image_;
  DType dtype_;
  int64_t most_rows_;
  BatchSource::LayoutOf layout_;
  std::array<BatchBuffers, kBatchesMade> buffers_;
  std::map<int64_t, Tensor> beside_;  // images of two rows of other ranks, by elements of an image
  int64_t made_ = 0, handed_ = 0;
  Stream maker_{Device::kCuda};
};

}  // namespace owt

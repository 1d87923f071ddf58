// Two batches on the GPU in turn: steps read one of them, and meanwhile the next one is made on a stream of its own.
// Images are mixed in pairs (data/mix.h) where the augmenter's settings say so. For .cu files.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "data/batch.h"
#include "data/batch_memory.h"
#include "data/device_augment.h"

namespace owt {

// The rows of a batch and those of other ranks that make up whole pairs with them, as the host knows them.
struct RowsOfPairs {
  int64_t before = 0, count = 0;  // rows of others before the batch's; the batch's
  std::vector<int64_t> samples;   // of all rows
  std::vector<int32_t> labels;    // the same, classes
};

class TwoBatches {
 public:
  // most_rows: that a batch may have.
  TwoBatches(const Augmenter& augmenter, Precision precision, int64_t most_rows);
  ~TwoBatches();  // waits for what is being made

  // BatchSource::lay_out(): for batches that are made from now on.
  void lay_out(BatchSource::LayoutOf layout) { layout_ = std::move(layout); }

  const Stream& maker() const { return maker_; }  // where batches are made

  // Makes a batch of `facts`, whose tensors are not used, behind those made before: all but one must have been handed
  // out. Its images are made from pixels and samples, as DeviceAugmenter takes them. Returns the place of labels, for
  // the caller to write. Then made() says that all is queued.
  Tensor make(const Batch& facts, const Tensor& pixels, DeviceAugmenter::Pixels which, const Tensor& samples,
              const View& view);
  // The same where the augmenter mixes images, with labels: pixels (of a batch) and samples are of all rows.
  void make_mixed(const Batch& facts, const Tensor& pixels, DeviceAugmenter::Pixels which, const Tensor& samples,
                  const RowsOfPairs& rows, const View& view);
  void made();

  bool empty() const { return made_ == handed_; }
  // The oldest batch that was not handed out yet: what is queued on the stream from now on sees it. The one handed out
  // before may be overwritten behind what is queued there now.
  const Batch& hand_out(const Stream& stream);

 private:
  struct Place {
    // Memory by elements of an image. None is freed, because that may wait for the GPU in the middle of a step.
    std::map<int64_t, Tensor> images;
    Tensor labels;
    Tensor host_labels, host_pairs, pairs;  // of mixed images: a PairMix for each pair
    Batch batch;
    Event made, used;
  };
  Place& place(int64_t number) { return places_[static_cast<size_t>(number % kBatchesMade)]; }
  Tensor images(Place& place, int64_t rows, const std::optional<ImageLayout>& layout);
  Place& begin(const Batch& facts, int64_t rows, const std::optional<ImageLayout>& layout);
  void describe_pairs(Place& place, const RowsOfPairs& rows, const View& view) const;

  DeviceAugmenter augmenter_;
  MixSettings mix_;
  Shape image_;
  DType dtype_;
  int64_t most_rows_;
  BatchSource::LayoutOf layout_;
  std::array<Place, kBatchesMade> places_;
  std::map<int64_t, Tensor> beside_;  // images of other ranks' rows, two, by elements of an image
  int64_t made_ = 0, handed_ = 0;
  Stream maker_{Device::kCuda};
};

}  // namespace owt

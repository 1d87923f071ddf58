// Two batches on the GPU in turn: steps read one of them, and meanwhile the next one is made on a stream of its own.
// For .cu files.
#pragma once

#include <array>
#include <map>

#include "data/batch.h"
#include "data/device_augment.h"

namespace owt {

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
    Batch batch;
    Event made, used;
  };
  Place& place(int64_t number) { return places_[static_cast<size_t>(number % 2)]; }
  Tensor images(Place& place, int64_t rows, const std::optional<ImageLayout>& layout);

  DeviceAugmenter augmenter_;
  Shape image_;
  DType dtype_;
  int64_t most_rows_;
  BatchSource::LayoutOf layout_;
  std::array<Place, 2> places_;
  int64_t made_ = 0, handed_ = 0;
  Stream maker_{Device::kCuda};
};

}  // namespace owt

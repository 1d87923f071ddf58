// Batches whose bytes are sent to the GPU ahead of need.
#include <array>
#include <optional>
#include <utility>

#include "data/device_augment.h"
#include "data/device_batches.h"
#include "src/core/check.h"
#include "src/core/cuda.h"

namespace owt {
namespace {

constexpr int64_t kAhead = 2;          // batches sent before they are asked for
constexpr int64_t kRing = kAhead + 1;  // and the one that is being augmented

class StreamedBatches : public BatchSource {
 public:
  StreamedBatches(Precision precision, LoaderSettings settings)
      : augmenter_(*settings.augmenter), training_(settings.training), seed_(settings.seed), copies_(Device::kCuda) {
    const int64_t rows =
        Steps(settings.dataset->size(), settings.batch, settings.rows, settings.epoch, settings.step_in_epoch)
            .most_rows();
    images_ = Tensor(settings.augmenter->out_shape().batch_of(rows), activation_type(precision), Device::kCuda);
    labels_ = Tensor({rows}, DType::kI32, Device::kCuda);
    for (Slot& slot : ring_) {
      slot.pixels = Tensor(settings.dataset->image().batch_of(rows), DType::kU8, Device::kCuda);
      slot.labels = Tensor({rows}, DType::kI32, Device::kCuda);
      slot.samples = Tensor({rows}, DType::kI64, Device::kCuda);
    }
    loader_.emplace(of_bytes(std::move(settings)));
  }
  ~StreamedBatches() override {
    try {
      copies_.synchronize();  // they read memory of the loader
    } catch (const Error&) {  // the GPU has failed: nothing is read any more, and whoever uses the batches will know
    }
  }

  const Batch& next(const Stream& stream) override {
    if (sent_ == handed_) send();
    Slot& slot = ring_[static_cast<size_t>(handed_ % kRing)];
    stream.wait(slot.arrived);
    batch_ = slot.batch;
    const int64_t rows = batch_.labels.shape().rows();
    batch_.images = images_.rows(0, rows);
    batch_.labels = labels_.rows(0, rows);
    augmenter_.run(slot.batch.images, DeviceAugmenter::Pixels::kOfBatch, slot.batch.samples,
                   {.training = training_, .seed = seed_, .epoch = batch_.epoch, .number = batch_.view}, batch_.images,
                   stream);
    batch_.labels.copy_from(slot.batch.labels, stream);
    batch_.samples = {};
    slot.used = stream.record();
    ++handed_;
    while (sent_ < handed_ + kAhead && loader_->ready()) send();
    return batch_;
  }
  int64_t steps_per_epoch() const override { return loader_->steps_per_epoch(); }

 private:
  struct Slot {
    Tensor pixels, labels, samples;  // for the largest step
    Batch batch;                     // views of them
    Event arrived, used;
  };

  // The ring reads from as many batches of the loader as it has slots.
  static LoaderSettings of_bytes(LoaderSettings settings) {
    settings.augmenter = nullptr;
    settings.slots += static_cast<int>(kRing) - settings.held;
    settings.held = static_cast<int>(kRing);
    settings.reader = Device::kCuda;
    return settings;
  }

  // Waits for the loader where it is not ready.
  void send() {
    Slot& slot = ring_[static_cast<size_t>(sent_ % kRing)];
    slot.arrived.wait();  // long done; the loader overwrites what this copy read
    const Batch& batch = loader_->next(copies_);
    const int64_t rows = batch.labels.shape().rows();
    slot.batch = batch;
    slot.batch.images = slot.pixels.rows(0, rows);
    slot.batch.labels = slot.labels.rows(0, rows);
    slot.batch.samples = slot.samples.rows(0, rows);
    copies_.wait(slot.used);
    slot.batch.images.copy_from(batch.images, copies_);
    slot.batch.labels.copy_from(batch.labels, copies_);
    slot.batch.samples.copy_from(batch.samples, copies_);
    slot.arrived = copies_.record();
    ++sent_;
  }

  DeviceAugmenter augmenter_;
  bool training_;
  uint64_t seed_;
  std::optional<Loader> loader_;
  Stream copies_;
  std::array<Slot, kRing> ring_;
  Tensor images_, labels_;         // for the largest step
  int64_t sent_ = 0, handed_ = 0;  // batches
  Batch batch_;
};

}  // namespace

std::unique_ptr<BatchSource> make_streamed_batches(Cuda cuda, LoaderSettings settings) {
  OWT_CHECK(settings.dataset && settings.augmenter);
  return std::make_unique<StreamedBatches>(cuda.precision, std::move(settings));
}

}  // namespace owt

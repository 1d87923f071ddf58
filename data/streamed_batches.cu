// Batches whose bytes are sent to the GPU ahead of time.
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "data/batch_memory.h"
#include "data/device_batches.h"
#include "data/jpeg/device_jpeg.h"
#include "data/two_batches.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kRing = kBatchesSent;
constexpr int64_t kAhead = kRing - 1;  // batches sent before they are made

class StreamedBatches : public BatchSource {
 public:
  StreamedBatches(Precision precision, LoaderSettings settings)
      : dataset_(settings.dataset),
        training_(settings.training),
        seed_(settings.seed),
        mixes_(settings.augmenter->mix().any()),
        own_rows_(settings.rows),
        batches_(*settings.augmenter, precision, most_rows(settings), settings.dataset->targets()) {
    if (mixes_) settings.rows = [this](int64_t step_rows) { return all_rows(step_rows); };
    const int64_t rows = most_rows(settings);
    for (DeviceBatch& slot : ring_) {
      slot.pixels = Tensor(settings.dataset->image().batch_of(rows), DType::kU8, Device::kCuda);
      slot.labels = Tensor(shape_of_labels({false, dataset_->targets()}, rows), DType::kI32, Device::kCuda);
      slot.samples = Tensor({rows}, DType::kI64, Device::kCuda);
    }
    if (training_ && settings.decoder != Decoder::kCpu) decode_here(settings, rows);
    loader_.emplace(of_bytes(std::move(settings)));
  }

  // If the loader is fast enough, the next batch is sent and made while the step of this one runs.
  const Batch& next(const Stream& stream) override {
    if (trial_) trial_->begin_step(seconds_now());
    if (batches_.empty()) make();
    const Batch& batch = batches_.hand_out(stream);
    if (sent_ > made_ || loader_->ready()) make();
    while (sent_ < made_ + kAhead && loader_->ready()) send();
    return batch;
  }
  int64_t steps_per_epoch() const override { return loader_->steps_per_epoch(); }
  void lay_out(LayoutOf layout) override { batches_.lay_out(std::move(layout)); }
  LoaderTimes times() const override { return loader_->times(); }
  DecoderTrial* decoder_trial() override { return trial_ ? &*trial_ : nullptr; }

 private:
  struct DeviceBatch {
    Tensor pixels, labels, samples;  // for the largest step
    Batch batch;                     // views of the tensors
    RowsOfPairs pairs;
    Tensor unread;  // on the host, see DeviceJpeg::run(); defined if the GPU may decode
    Event arrived;
  };

  static const SampleDraw* draws_of(const Batch& of_loader) {
    return static_cast<const SampleDraw*>(of_loader.samples.raw());
  }

  static double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  static int64_t most_rows(const LoaderSettings& of) {
    return Steps(of.dataset->size(), of.batch, of.rows, of.epoch, of.images_in_epoch).most_rows();
  }
  Slice own_rows(int64_t step_rows) const { return own_rows_ ? own_rows_(step_rows) : Slice{0, step_rows}; }
  // The rows that are read.
  Slice all_rows(int64_t step_rows) const { return whole_pairs(own_rows(step_rows), step_rows, training_); }

  // Lets the GPU decode, always or in turn with the CPU.
  void decode_here(LoaderSettings& settings, int64_t rows) {
    const bool always = settings.decoder == Decoder::kGpu;
    std::string why_not;
    try {
      const int64_t pixels = dataset_->most_pixels_of_files();
      if (pixels == 0)
        fail("all photographs have more than ", DeviceJpeg::kMostPixels,
             " pixels, too many for nvJPEG here; set data.decoder = \"cpu\", or prepare them smaller");
      jpegs_.emplace(rows, dataset_->image()[0], static_cast<int>(dataset_->image()[2]), pixels);
    } catch (const Error& e) {
      if (always) throw;
      why_not = e.what();
    }
    if (!always) trial_.emplace(why_not);
    if (!jpegs_) return;
    for (DeviceBatch& slot : ring_) {
      slot.unread = Tensor::shared_with(Device::kCuda, {1}, DType::kI32);
      slot.unread.data<int32_t>()[0] = 0;
    }
    settings.files = [this, always](int64_t step) { return always || trial_->on_gpu(step); };
  }

  // The ring reads from as many batches of the loader as it has slots.
  static LoaderSettings of_bytes(LoaderSettings settings) {
    settings.augmenter = nullptr;
    settings.slots += static_cast<int>(kRing) - settings.held;
    settings.held = static_cast<int>(kRing);
    settings.reader = Device::kCuda;
    return settings;
  }

  const Stream& copies() const { return batches_.maker(); }

  void make() {
    if (sent_ == made_) send();
    const DeviceBatch& slot = ring_[static_cast<size_t>(made_++ % kRing)];
    const Batch& sent = slot.batch;
    const View view{.training = training_, .seed = seed_, .number = sent.view};
    constexpr auto kOfBatch = DeviceAugmenter::Pixels::kOfBatch;
    if (mixes_)
      batches_.make_mixed(sent, sent.images, kOfBatch, sent.samples, slot.pairs, view);
    else
      batches_.make(sent, sent.images, kOfBatch, sent.samples, view).copy_from(sent.labels, copies());
    batches_.made();
  }

  // Waits for the loader if it is not ready.
  void send() {
    DeviceBatch& slot = ring_[static_cast<size_t>(sent_ % kRing)];
    slot.arrived.wait();  // long done; the loader overwrites the memory that this copy read
    check_decoded(slot);
    const Batch& batch = loader_->next(copies());
    const int64_t rows = batch.labels.shape().rows();
    slot.batch = batch;
    slot.batch.images = slot.pixels.rows(0, rows);
    slot.batch.labels = slot.labels.rows(0, rows);
    slot.batch.samples = slot.samples.rows(0, rows);
    slot.batch.files = {};
    fill_pixels(batch, slot);
    slot.batch.labels.copy_from(batch.labels, copies());
    slot.batch.samples.copy_from(batch.samples, copies());
    slot.arrived = copies().record();
    if (mixes_) slot.pairs = pairs_of(batch);
    ++sent_;
  }

  // batch: the loader's batch, on the host. Files that nvJPEG refuses were decoded when they were packed, so reading
  // them again does not find them damaged.
  void fill_pixels(const Batch& batch, DeviceBatch& slot) {
    if (!batch.files.defined()) return slot.batch.images.copy_from(batch.images, copies());
    const auto read = [&](int64_t row) {
      Tensor pixels = batch.images.rows(row, row + 1);
      const SampleDraw& draw = draws_of(batch)[row];
      const View view{.training = training_, .seed = seed_, .epoch = draw.pass};
      dataset_->read(draw.sample, view, pixels.data<uint8_t>());
    };
    jpegs_->run(batch.images, batch.files, slot.batch.images, read, slot.unread, copies());
  }

  // The batch that was sent in this slot has been made, and at most kRing steps have begun since.
  static void check_decoded(const DeviceBatch& slot) {
    if (!slot.unread.defined() || slot.unread.data<int32_t>()[0] == 0) return;
    fail("nvJPEG has left an image of a batch without pixels: row ", slot.unread.data<int32_t>()[0] - 1, " of step ",
         slot.batch.step_in_epoch + 1, " in epoch ", slot.batch.epoch + 1, "; set data.decoder = \"cpu\"");
  }

  // batch: the loader's batch, on the host.
  RowsOfPairs pairs_of(const Batch& batch) const {
    const Slice own = own_rows(batch.step_rows);
    const SampleDraw* draws = draws_of(batch);
    const int32_t* labels = batch.labels.data<int32_t>();
    return {.before = own.begin - all_rows(batch.step_rows).begin,
            .count = own.size(),
            .draws = {draws, draws + batch.labels.shape().rows()},
            .labels = {labels, labels + batch.labels.elements()}};
  }

  std::shared_ptr<const Dataset> dataset_;
  bool training_;
  uint64_t seed_;
  bool mixes_;
  RowsOfStep own_rows_;  // this rank's rows
  std::optional<DeviceJpeg> jpegs_;
  std::optional<DecoderTrial> trial_;
  std::optional<Loader> loader_;
  std::array<DeviceBatch, kRing> ring_;
  TwoBatches batches_;           // its destructor waits for reads of the members above
  int64_t sent_ = 0, made_ = 0;  // batches
};

}  // namespace

std::unique_ptr<BatchSource> make_streamed_batches(Cuda cuda, LoaderSettings settings) {
  OWT_CHECK(settings.dataset && settings.augmenter);
  return std::make_unique<StreamedBatches>(cuda.precision, std::move(settings));
}

}  // namespace owt

// Batches of a data set that is entirely on the GPU.
#include <algorithm>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "data/device_batches.h"
#include "data/order.h"
#include "data/two_batches.h"
#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/system/check.h"

namespace owt {
namespace {

struct ResidentSet {
  Tensor pixels;  // N x H x W x C, u8
  Tensor labels;  // N rows of write_label(), i32
};

constexpr int64_t kUploadBytes = 8 << 20;  // per transfer

ResidentSet upload(const Dataset& dataset) {
  const Working working("the data set", "upload");
  const int64_t size = dataset.size();
  ResidentSet set{Tensor(dataset.image().batch_of(size), DType::kU8, Device::kCuda),
                  Tensor(shape_of_labels({false, dataset.targets()}, size), DType::kI32, Device::kCuda)};
  const int64_t part = std::clamp<int64_t>(kUploadBytes / dataset.image().elements(), 1, size);
  Tensor pixels = Tensor::shared_with(Device::kCuda, dataset.image().batch_of(part), DType::kU8);
  Tensor labels = Tensor::shared_with(Device::kCuda, shape_of_labels({false, dataset.targets()}, part), DType::kI32);
  for (int64_t first = 0; first < size; first += part) {
    const int64_t rows = std::min(part, size - first);
    read_images(dataset, {first, first + rows}, pixels.data<uint8_t>(), labels.data<int32_t>());
    set.pixels.rows(first, first + rows).copy_from(pixels.rows(0, rows));
    set.labels.rows(first, first + rows).copy_from(labels.rows(0, rows));
  }
  return set;
}

// The only copy of a data set on the calling host thread's GPU.
std::shared_ptr<const ResidentSet> resident_set(const std::shared_ptr<const Dataset>& dataset) {
  struct SharedSet {
    std::weak_ptr<const Dataset> dataset;
    int gpu;
    std::shared_ptr<const ResidentSet> set;
  };
  // Never destroyed: when static objects are destroyed, the driver may be gone.
  static std::mutex& mutex = *new std::mutex;
  static std::vector<SharedSet>& entries = *new std::vector<SharedSet>;
  int gpu = 0;
  OWT_CUDA(cudaGetDevice(&gpu));
  const std::lock_guard lock(mutex);  // other ranks on this GPU wait for the upload
  std::erase_if(entries, [](const SharedSet& entry) { return entry.dataset.expired(); });
  for (const SharedSet& entry : entries)
    if (entry.gpu == gpu && entry.dataset.lock() == dataset) return entry.set;
  entries.push_back({dataset, gpu, std::make_shared<const ResidentSet>(upload(*dataset))});
  return entries.back().set;
}

// out: rows x numbers.
__global__ void gather_labels(const int32_t* labels, const SampleDraw* draws, int64_t elements, int64_t numbers,
                              int32_t* out) {
  wait_for_previous_kernel();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < elements) out[at] = labels[draws[at / numbers].sample * numbers + at % numbers];
}

class ResidentBatches : public BatchSource {
 public:
  ResidentBatches(Precision precision, LoaderSettings settings)
      : settings_(std::move(settings)),
        size_(settings_.dataset->size()),
        steps_(size_, settings_.batch, settings_.rows, settings_.epoch, settings_.images_in_epoch, settings_.views),
        orders_(orders_of(settings_)),
        set_(resident_set(settings_.dataset)),
        host_order_(Tensor::shared_with(Device::kCuda, {size_}, DType::kI64)),
        order_({size_}, DType::kI64, Device::kCuda),
        batches_(*settings_.augmenter, precision, steps_.most_rows(), settings_.dataset->targets()) {
    prepare_order(steps_.step(0).epoch);
  }

  // The next batch is made while the step of this one runs.
  const Batch& next(const Stream& stream) override {
    if (batches_.empty()) make();
    const Batch& batch = batches_.hand_out(stream);
    make();
    return batch;
  }
  int64_t steps_per_epoch() const override { return steps_.batches_per_epoch(); }
  void lay_out(LayoutOf layout) override { batches_.lay_out(std::move(layout)); }

 private:
  int64_t numbers() const { return 1 + settings_.dataset->targets(); }  // a row of write_label()

  void make() {
    const Stream& stream = batches_.maker();
    const Steps::RankStep step = steps_.step(next_++);
    if (step.epoch != order_epoch_) begin_epoch(step.epoch, stream);
    const int64_t rows = step.count();
    const Batch facts{.images = {},
                      .labels = {},
                      .samples = {},
                      .files = {},
                      .epoch = step.epoch,
                      .step_in_epoch = step.step_in_epoch,
                      .step_rows = step.step_rows,
                      .view = step.view};
    const View view{.training = settings_.training, .seed = settings_.seed, .number = step.view};
    if (settings_.augmenter->mix().any()) {
      make_mixed(step, facts, view);
      return batches_.made();
    }
    const Tensor samples = order_.part(step.places.begin, {rows});
    Tensor labels = batches_.make(facts, set_->pixels, DeviceAugmenter::Pixels::kOfSet, samples, view);
    launch(gather_labels, dim3(blocks_for(labels.elements())), dim3(kBlockThreads), stream,
           set_->labels.data<int32_t>(), static_cast<const SampleDraw*>(samples.raw()), labels.elements(), numbers(),
           labels.data<int32_t>());
    batches_.made();
  }

  void make_mixed(const Steps::RankStep& step, const Batch& facts, const View& view) {
    const int64_t first = step.first;  // first row of the step in the order
    const Slice all = whole_pairs({step.places.begin - first, step.places.end - first}, step.step_rows, view.training);
    RowsOfPairs rows{.before = step.places.begin - first - all.begin, .count = step.count(), .draws = {}, .labels = {}};
    for (int64_t row = all.begin; row < all.end; ++row) {
      rows.draws.push_back(static_cast<const SampleDraw*>(host_order_.raw())[first + row]);
      rows.labels.resize(rows.labels.size() + numbers());
      write_label(*settings_.dataset, rows.draws.back().sample, rows.labels.data() + rows.labels.size() - numbers());
    }
    batches_.make_mixed(facts, set_->pixels, DeviceAugmenter::Pixels::kOfSet,
                        order_.part(first + all.begin, {all.size()}), rows, view);
  }

  void prepare_order(int64_t epoch) {
    // If no thread can be started, it is made on demand.
    next_order_ = std::async(std::launch::async | std::launch::deferred, &EpochOrders::draws, &orders_, epoch);
  }

  // Batches of the previous epoch are already queued on the stream, so the copy runs after them.
  void begin_epoch(int64_t epoch, const Stream& stream) {
    const bool first = order_epoch_ < 0;
    order_epoch_ = epoch;
    if (!first && !settings_.training) return;  // passes make no difference
    const std::vector<SampleDraw> order = next_order_.get();
    order_copied_.wait();  // long done, except for epochs of very few steps
    std::copy(order.begin(), order.end(), static_cast<SampleDraw*>(host_order_.raw()));
    order_.copy_from(host_order_, stream);
    order_copied_ = stream.record();
    if (settings_.training) prepare_order(epoch + 1);
  }

  LoaderSettings settings_;
  int64_t size_;
  Steps steps_;
  EpochOrders orders_;
  std::shared_ptr<const ResidentSet> set_;
  Tensor host_order_, order_;  // the epoch's order; one on the host, one on the GPU
  Event order_copied_;
  int64_t order_epoch_ = -1;
  std::future<std::vector<SampleDraw>> next_order_;
  int64_t next_ = 0;
  TwoBatches batches_;  // its destructor waits for reads of the members above
};

}  // namespace

std::unique_ptr<BatchSource> make_resident_batches(Cuda cuda, LoaderSettings settings) {
  OWT_CHECK(settings.dataset && settings.augmenter);
  return std::make_unique<ResidentBatches>(cuda.precision, std::move(settings));
}

}  // namespace owt

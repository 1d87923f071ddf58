#include "data/loader.h"

#include <algorithm>

#include "data/order.h"
#include "src/core/check.h"

namespace owt {
namespace {

// Small enough that threads share a batch evenly and stop at once, large enough that claiming costs nothing.
constexpr int64_t kChunkRows = 8;

}  // namespace

int64_t steps_per_epoch(int64_t size, int64_t batch) { return (size + batch - 1) / batch; }

Loader::Loader(LoaderSettings settings) : settings_(std::move(settings)) {
  OWT_CHECK(settings_.dataset && settings_.augmenter);
  OWT_CHECK(settings_.batch >= 1 && settings_.threads >= 1 && settings_.slots >= 2);
  OWT_CHECK(settings_.epoch >= 0 && settings_.step_in_epoch >= 0);
  size_ = settings_.dataset->size();
  if (size_ == 0) fail("the data set holds no images");
  steps_per_epoch_ = owt::steps_per_epoch(size_, settings_.batch);
  OWT_CHECK(settings_.step_in_epoch <= steps_per_epoch_, "step ", settings_.step_in_epoch, " of an epoch of ",
            steps_per_epoch_, " steps");
  first_step_ = settings_.epoch * steps_per_epoch_ + settings_.step_in_epoch;
  allocate_slots();
  try {
    for (int i = 0; i < settings_.threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {  // no more threads to be had: those that run must end before this object goes
    stop_with(nullptr);
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

Loader::~Loader() {
  stop_with(nullptr);
  for (std::thread& thread : threads_) thread.join();
}

int64_t Loader::step_rows(int64_t step_in_epoch) const {
  return std::min(settings_.batch, size_ - step_in_epoch * settings_.batch);
}

Slice Loader::my_rows(int64_t step_rows) const {
  const Slice rows = settings_.rows ? settings_.rows(step_rows) : Slice{0, step_rows};
  OWT_CHECK(0 <= rows.begin && rows.begin <= rows.end && rows.end <= step_rows, "rows ", rows.begin, " to ", rows.end,
            " of a step of ", step_rows);
  return rows;
}

void Loader::allocate_slots() {
  const int64_t rows = std::max(my_rows(step_rows(0)).size(), my_rows(step_rows(steps_per_epoch_ - 1)).size());
  chunks_per_step_ = std::max<int64_t>(1, (rows + kChunkRows - 1) / kChunkRows);
  slots_.resize(static_cast<size_t>(settings_.slots));
  for (Slot& slot : slots_) {
    slot.images = Tensor(settings_.augmenter->out_shape().batch_of(rows));
    slot.labels = Tensor({rows}, DType::kI32);
  }
}

const Batch& Loader::next() {
  std::unique_lock lock(mutex_);
  released_ = handed_;
  room_.notify_all();
  Slot& slot = slots_[static_cast<size_t>(handed_ % settings_.slots)];
  const auto complete = [&] { return claimed_ > handed_ * chunks_per_step_ && slot.chunks_done == chunks_per_step_; };
  ready_.wait(lock, [&] { return complete() || error_; });
  if (!complete()) std::rethrow_exception(error_);
  ++handed_;
  return slot.batch;
}

void Loader::work() {
  try {
    std::vector<uint8_t> pixels(static_cast<size_t>(settings_.dataset->image().elements()));
    for (Chunk chunk; claim(chunk);) {
      load(chunk, pixels);
      const std::lock_guard lock(mutex_);
      if (++chunk.slot->chunks_done == chunks_per_step_) ready_.notify_all();
    }
  } catch (...) {
    stop_with(std::current_exception());
  }
}

bool Loader::claim(Chunk& chunk) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return stop_ || claimed_ / chunks_per_step_ < released_ + settings_.slots; });
  if (stop_) return false;
  const int64_t made_step = claimed_ / chunks_per_step_, index = claimed_ % chunks_per_step_;
  Slot& slot = slots_[static_cast<size_t>(made_step % settings_.slots)];
  if (index == 0) begin_step(slot, first_step_ + made_step);
  ++claimed_;
  const int64_t rows = slot.batch.labels.shape().rows();
  const int64_t mine = my_rows(slot.batch.step_rows).begin;
  chunk = {.slot = &slot,
           .epoch = slot.batch.epoch,
           .rows = split(rows, static_cast<int>(chunks_per_step_), static_cast<int>(index)),
           .first = slot.batch.step_in_epoch * settings_.batch + mine,
           .order = order_};
  return true;
}

// Chunks are claimed in order, so all chunks of a step see the order of the step's epoch.
void Loader::begin_step(Slot& slot, int64_t step) {
  const int64_t epoch = step / steps_per_epoch_, step_in_epoch = step % steps_per_epoch_;
  if (epoch != order_epoch_) {
    order_ = std::make_shared<const std::vector<int64_t>>(
        epoch_order(settings_.seed, epoch, size_, settings_.training && settings_.shuffle));
    order_epoch_ = epoch;
  }
  const int64_t whole = step_rows(step_in_epoch), rows = my_rows(whole).size();
  slot.batch = {.images = slot.images.rows(0, rows),
                .labels = slot.labels.rows(0, rows),
                .epoch = epoch,
                .step_in_epoch = step_in_epoch,
                .step_rows = whole};
  slot.chunks_done = 0;
}

void Loader::load(const Chunk& chunk, std::vector<uint8_t>& pixels) const {
  const Dataset& dataset = *settings_.dataset;
  const Augmenter& augmenter = *settings_.augmenter;
  const int64_t elements = augmenter.out_shape().elements();
  float* images = chunk.slot->images.data();
  int32_t* labels = chunk.slot->labels.data<int32_t>();
  for (int64_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
    const int64_t sample = (*chunk.order)[static_cast<size_t>(chunk.first + row)];
    dataset.read(sample, pixels.data());
    labels[row] = dataset.label(sample);
    float* out = images + row * elements;
    if (settings_.training) {
      augmenter.train_image(settings_.seed, chunk.epoch, sample, pixels.data(), out);
    } else {
      augmenter.eval_image(pixels.data(), out);
    }
  }
}

void Loader::stop_with(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  if (!error_) error_ = error;
  room_.notify_all();
  ready_.notify_all();
}

}  // namespace owt

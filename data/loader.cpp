#include "data/loader.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>

#include "src/core/bf16.h"
#include "src/core/poison.h"
#include "src/system/activity.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Small enough to share a batch evenly and to stop quickly, large enough to make the cost of claiming negligible.
constexpr int64_t kChunkRows = 8;
// One in this many chunks is timed, which takes two system calls.
constexpr int kTimedOf = 8;

struct ThreadUsage {
  double wall_s, cpu_s;
  int64_t waits;  // voluntary context switches of the thread

  static ThreadUsage now() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    timespec cpu{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);  // exact; getrusage() counts whole ticks of the scheduler
    return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
            static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec), usage.ru_nvcsw};
  }
};

// A thread that makes a chunk waits only for its files. A thread that was preempted does not wait.
LoaderTimes taken_between(const ThreadUsage& begin, const ThreadUsage& end) {
  const double wall = end.wall_s - begin.wall_s, cpu = std::min(wall, end.cpu_s - begin.cpu_s);
  return {cpu, end.waits > begin.waits ? wall - cpu : 0};
}

}  // namespace

EpochOrders orders_of(const LoaderSettings& of) {
  OWT_CHECK(of.dataset);
  return {*of.dataset, of.seed, of.training && of.shuffle, of.training ? of.sampling : Sampling::kUniform};
}

Loader::Loader(LoaderSettings settings) : settings_(std::move(settings)), orders_(orders_of(settings_)) {
  OWT_CHECK(settings_.views.count == 1 || !settings_.training);
  OWT_CHECK(settings_.threads >= 1 && settings_.held >= 1 && settings_.slots > settings_.held);
  steps_ = Steps(settings_.dataset->size(), settings_.batch, settings_.rows, settings_.epoch, settings_.images_in_epoch,
                 settings_.views);
  mixes_ = settings_.augmenter && settings_.augmenter->mix().any();
  label_rows_ = {mixes_, settings_.dataset->targets()};
  allocate_slots();
  threads_.start(
      settings_.threads, "data loader thread", "use fewer --workers or data.loader_threads", [this](int) { work(); },
      [this] { stop(); });
}

Loader::~Loader() {
  stop();
  threads_.join();
}

void Loader::allocate_slots() {
  const int64_t rows = steps_.most_rows();
  chunks_per_step_ = std::max<int64_t>(1, (rows + kChunkRows - 1) / kChunkRows);
  const bool raw = !settings_.augmenter;
  const Shape image = raw ? settings_.dataset->image() : settings_.augmenter->out_shape();
  slots_.resize(settings_.slots);
  for (HostBatch& slot : slots_) {
    slot.images = Tensor::shared_with(settings_.reader, image.batch_of(rows), raw ? DType::kU8 : settings_.images);
    slot.labels = Tensor::shared_with(settings_.reader, shape_of_labels(label_rows_, rows), DType::kI32);
    if (raw) slot.samples = Tensor::shared_with(settings_.reader, {rows}, DType::kI64);
    if (settings_.files)
      slot.files = Tensor::shared_with(settings_.reader, {rows, static_cast<int64_t>(sizeof(FileRow))}, DType::kU8);
  }
}

int32_t* Loader::label_row(HostBatch& slot, int64_t row) const {
  return slot.labels.data<int32_t>() + row * label_rows_.numbers();
}

// Called when the slot's batch is no longer read.
void Loader::release(const HostBatch& slot) {
  for (const Tensor& part : {slot.images, slot.labels, slot.samples, slot.files}) poison(part, Stream());
}

const Batch& Loader::next(const Stream&) {
  std::unique_lock lock(mutex_);
  for (; released_ <= handed_ - settings_.held; ++released_) release(slots_[released_ % settings_.slots]);
  room_.notify_all();
  const HostBatch& slot = slots_[handed_ % settings_.slots];
  {
    const Waits waits(WaitsFor::kData);
    ready_.wait(lock, [&] { return complete(slot) || (error_ && error_step_ <= handed_); });
  }
  if (!complete(slot)) std::rethrow_exception(error_);
  ++handed_;
  return slot.batch;
}

bool Loader::ready() {
  const std::lock_guard lock(mutex_);
  return complete(slots_[handed_ % settings_.slots]);
}

bool Loader::complete(const HostBatch& slot) const {
  return claimed_ > handed_ * chunks_per_step_ && slot.chunks_done == chunks_per_step_;
}

void Loader::work() {
  Chunk chunk;
  try {
    std::vector<uint8_t> pixels(settings_.dataset->image().elements());
    while (claim(chunk)) {
      load_timed(chunk, pixels);
      const std::lock_guard lock(mutex_);
      if (++chunk.slot->chunks_done == chunks_per_step_) ready_.notify_all();
    }
  } catch (...) {
    stop_with(std::current_exception(), chunk.step);
  }
}

void Loader::load_timed(const Chunk& chunk, std::vector<uint8_t>& pixels) {
  if (!chunk.timed && !settings_.record) return load(chunk, pixels);
  const ThreadUsage begin = ThreadUsage::now();
  LoadWork work{.images = std::max<int64_t>(0, chunk.rows.size())};
  {
    std::optional<StageClock> stages;
    if (settings_.record) stages.emplace();
    load(chunk, pixels);
    if (stages) work.staged_s = stages->whole(), work.stage_s = stages->seconds();
  }
  const LoaderTimes took = work.times = taken_between(begin, ThreadUsage::now());
  if (settings_.record) settings_.record->add(work);
  if (!chunk.timed) return;
  const std::lock_guard lock(mutex_);
  times_.work_s += kTimedOf * took.work_s;
  times_.wait_s += kTimedOf * took.wait_s;
}

LoaderTimes Loader::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

bool Loader::claim(Chunk& chunk) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return stop_ || claimed_ / chunks_per_step_ < released_ + settings_.slots; });
  if (stop_) return false;
  const int64_t step = claimed_ / chunks_per_step_, index = claimed_ % chunks_per_step_;
  chunk.step = step;
  const bool timed = claimed_ % kTimedOf == 0;
  HostBatch& slot = slots_[step % settings_.slots];
  if (index == 0) begin_step(slot, step);
  ++claimed_;
  chunk = {.step = step, .slot = &slot, .rows = rows_of_chunk(slot, index), .order = order_, .timed = timed};
  return true;
}

// If images are mixed, one thread makes both images of a pair.
Slice Loader::rows_of_chunk(const HostBatch& slot, int64_t index) const {
  const int64_t rows = slot.batch.labels.shape().rows(), together = mixes_ ? 2 : 1;
  const int64_t before = slot.first_row % together;  // rows of the first pair that belong to another rank
  const Slice part =
      split((before + rows + together - 1) / together, static_cast<int>(chunks_per_step_), static_cast<int>(index));
  return {std::max<int64_t>(0, part.begin * together - before), std::min(rows, part.end * together - before)};
}

// Chunks are claimed in order, so all chunks of a step use the order of the step's epoch.
void Loader::begin_step(HostBatch& slot, int64_t number) {
  const Steps::RankStep step = steps_.step(number);
  if (step.epoch != order_epoch_) {
    order_ = std::make_shared<const std::vector<SampleDraw>>(orders_.draws(step.epoch));
    order_epoch_ = step.epoch;
  }
  const int64_t rows = step.count();
  slot.batch = {.images = slot.images.rows(0, rows),
                .labels = slot.labels.rows(0, rows),
                .samples = settings_.augmenter ? Tensor() : slot.samples.rows(0, rows),
                .files = settings_.files && settings_.files(number) ? slot.files.rows(0, rows) : Tensor(),
                .hint = {},
                .epoch = step.epoch,
                .step_in_epoch = step.step_in_epoch,
                .step_rows = step.step_rows,
                .view = step.view};
  slot.first = step.places.begin;
  slot.first_row = step.places.begin - step.first;
  slot.chunks_done = 0;
}

// Makes one row's image, possibly the row before the first or after the last; returns what is shown.
template <class T>
SampleDraw Loader::make(const Chunk& chunk, int64_t row, std::vector<uint8_t>& pixels, T* image) const {
  note_work();
  const SampleDraw draw = read(chunk, row, pixels.data());
  settings_.augmenter->make(view_of(chunk.slot->batch, draw), draw.sample, pixels.data(), image);
  StageClock::end(LoadStage::kAugment);
  return draw;
}

void Loader::load(const Chunk& chunk, std::vector<uint8_t>& pixels) const {
  HostBatch& slot = *chunk.slot;
  const int64_t elements = slot.images.shape().row_elements();
  const Slice& rows = chunk.rows;
  std::vector<SampleDraw> draws(std::max<int64_t>(0, rows.size()));
  const auto draw_of = [&](int64_t row) -> SampleDraw& { return draws[row - rows.begin]; };
  if (settings_.augmenter)
    with_cpu_element(slot.images.dtype(), [&](auto element) {
      auto* images = slot.images.data<decltype(element)>();
      for (int64_t row = rows.begin; row < rows.end; ++row)
        draw_of(row) = make(chunk, row, pixels, images + row * elements);
      if (mixes_) mix(chunk, draws, pixels, images);
    });
  else
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      note_work();
      uint8_t* bytes = slot.images.data<uint8_t>() + row * elements;
      FileRow* file = slot.batch.files.defined() ? static_cast<FileRow*>(slot.batch.files.raw()) + row : nullptr;
      static_cast<SampleDraw*>(slot.samples.raw())[row] = draw_of(row) = read(chunk, row, bytes, file);
    }
  for (int64_t row = rows.begin; row < rows.end && !mixes_; ++row)
    write_label(*settings_.dataset, draw_of(row).sample, label_row(slot, row));
}

// Mixes pairs and writes the labels of all rows. If another rank has one row of a pair, that image is made here too.
template <class T>
void Loader::mix(const Chunk& chunk, const std::vector<SampleDraw>& draws, std::vector<uint8_t>& pixels,
                 T* images) const {
  HostBatch& slot = *chunk.slot;
  const Shape& image = settings_.augmenter->out_shape();
  const Slice& rows = chunk.rows;
  std::vector<T> another;
  std::vector<int32_t> of_own(1 + label_rows_.targets), of_other(of_own);
  const auto label = [&](const PairMix& mix, int64_t row, const SampleDraw& own, const SampleDraw& other) {
    write_label(*settings_.dataset, own.sample, of_own.data());
    write_label(*settings_.dataset, other.sample, of_other.data());
    write_mixed_label(mix, of_own.data(), of_other.data(), label_rows_.targets, label_row(slot, row));
  };
  for (int64_t row = rows.begin, done = 1; row < rows.end; row += done) {
    const int64_t in_step = slot.first_row + row, beside = (in_step ^ 1) - slot.first_row;
    const SampleDraw draw = draws[row - rows.begin];
    const bool pair = settings_.training && (in_step ^ 1) < slot.batch.step_rows,
               here = pair && rows.begin <= beside && beside < rows.end;
    done = here ? 2 : 1;
    if (!pair) {
      label({}, row, draw, draw);
      continue;
    }
    if (!here) another.resize(image.elements());
    T *own = images + row * image.elements(), *other = here ? own + image.elements() : another.data();
    const SampleDraw other_draw = here ? draws[beside - rows.begin] : make(chunk, beside, pixels, other);
    const bool first = in_step % 2 == 0;
    const SampleDraw& of_pair = first ? draw : other_draw;
    const PairMix mix = draw_mix(settings_.augmenter->mix(), image, view_of(slot.batch, of_pair), of_pair.sample);
    mix_images(mix, image, first ? own : other, first ? other : own);
    StageClock::end(LoadStage::kMix);
    label(mix, row, draw, other_draw);
    if (here) label(mix, beside, other_draw, draw);
  }
}

// Reads the sample of a row, or the next one of the order that can be read; returns what was read.
SampleDraw Loader::read(const Chunk& chunk, int64_t row, uint8_t* pixels, FileRow* file) const {
  const std::vector<SampleDraw>& order = *chunk.order;
  const auto size = std::ssize(order);
  for (int64_t tries = 1, place = chunk.slot->first + row;; ++tries, place = (place + 1) % size) {
    const SampleDraw& draw = order[place];
    const View view = view_of(chunk.slot->batch, draw);
    try {
      if (file)
        *file = settings_.dataset->read_jpeg(draw.sample, view, pixels);
      else
        settings_.dataset->read(draw.sample, view, pixels);
      StageClock::end(LoadStage::kRead);  // data sets without stages of their own only read
      return draw;
    } catch (const CorruptRecord& error) {
      if (!settings_.training || !settings_.corrupt || tries == size) throw;
      settings_.corrupt->add(draw.sample, error);
    }
  }
}

View Loader::view_of(const Batch& batch, const SampleDraw& draw) const {
  if (!settings_.training) return {.number = batch.view};
  return {.training = true, .seed = settings_.seed, .epoch = draw.pass};
}

void Loader::stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  room_.notify_all();
}

// Chunks are claimed in order: chunks of earlier steps are done, or their threads will finish them.
void Loader::stop_with(std::exception_ptr error, int64_t step) {
  stop();
  const std::lock_guard lock(mutex_);
  if (!error_ || step < error_step_) error_ = error, error_step_ = step;
  ready_.notify_all();
}

}  // namespace owt

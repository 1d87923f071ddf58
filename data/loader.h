// Batches made ready ahead of the step by threads of their own.
//
// The steps and their order: data/steps.h. A loader makes the rows of each step that settings.rows() names, in order,
// so that the loaders of all ranks together make the step exactly once. A batch is a function of the settings: the
// number of threads and slots changes nothing.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "data/augment.h"
#include "data/batch.h"
#include "data/corrupt_records.h"
#include "data/dataset.h"
#include "data/steps.h"
#include "src/core/joined_threads.h"

namespace owt {

struct LoaderSettings {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const Augmenter> augmenter;  // null: batches hold the images' bytes as read
  DType images = DType::kF32;                  // what the augmenter makes, or kBF16
  // In training a damaged record is replaced by the one that follows in the epoch's order (behind the last, the first),
  // and counted here; null, and in evaluation: it is an error.
  std::shared_ptr<CorruptRecords> corrupt{};
  int64_t batch = 0;  // rows of a whole step over all ranks, >= 1
  uint64_t seed = 0;
  bool training = true;  // false: samples in order, augmenter's evaluation images, no randomness
  bool shuffle = true;   // in training
  int threads = 1;       // >= 1
  int slots = 3;         // batches in memory, more than `held`: those handed out and those made ahead
  int held = 1;          // batches handed out last that stay as they are, >= 1
  Views views{};         // in evaluation: every step comes so often, as each of them shows it
  int64_t epoch = 0,
          images_in_epoch = 0;   // where to start: so many images of the epoch are done
  RowsOfStep rows{};             // safe from several threads
  Device reader = Device::kCpu;  // copies out of the batches while the host goes on
};

class Loader : public BatchSource {
 public:
  // Throws Error for an empty data set or settings out of range. Starts loading at once.
  explicit Loader(LoaderSettings settings);
  ~Loader() override;  // waits for the few rows that are being loaded

  const Batch& next(const Stream& stream) override;  // the stream may be of any device
  int64_t steps_per_epoch() const override { return steps_.batches_per_epoch(); }
  // From one chunk of many.
  LoaderTimes times() const override;
  bool ready();  // next() has not to wait for the threads

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  struct Slot {
    Batch batch;
    Tensor images, labels, samples;  // for the largest step
    int64_t first = 0;               // place in the epoch's order of row 0
    int64_t first_row = 0;           // the same, in the step
    int64_t chunks_done = 0;
  };
  // A part of a step that one thread makes.
  struct Chunk {
    int64_t step = 0;  // counted as handed_ is
    Slot* slot = nullptr;
    Slice rows;  // those of the slot
    Order order;
    bool timed = false;
  };

  void allocate_slots();
  void work();
  bool claim(Chunk& chunk);  // false: stop
  void begin_step(Slot& slot, const Steps::RankStep& step);
  Slice rows_of_chunk(const Slot& slot, int64_t index) const;
  void load_timed(const Chunk& chunk, std::vector<uint8_t>& pixels);
  void load(const Chunk& chunk, std::vector<uint8_t>& pixels) const;
  template <class T>
  int64_t make(const Chunk& chunk, int64_t row, std::vector<uint8_t>& pixels, T* image) const;
  template <class T>
  void mix(const Chunk& chunk, const std::vector<int64_t>& samples, std::vector<uint8_t>& pixels, T* images) const;
  int64_t read(const std::vector<int64_t>& order, int64_t place, const View& view, uint8_t* pixels) const;
  View view_of(const Batch& batch) const;
  static void release(const Slot& slot);
  bool complete(const Slot& slot) const;  // the slot of the next batch is
  void stop();
  void stop_with(std::exception_ptr error, int64_t step);

  LoaderSettings settings_;
  bool mixes_ = false;  // rows have mixed labels, and in training pairs of images are mixed
  Steps steps_;
  int64_t chunks_per_step_ = 1;

  mutable std::mutex mutex_;  // guards all below but the contents of tensors
  std::condition_variable room_, ready_;
  std::vector<Slot> slots_;
  int64_t claimed_ = 0;   // chunks, counted over all steps
  int64_t handed_ = 0;    // steps given to the caller; steps are counted from the first one made here
  int64_t released_ = 0;  // steps whose slots are free again
  int64_t order_epoch_ = -1;
  Order order_;
  LoaderTimes times_;
  bool stop_ = false;
  std::exception_ptr error_;  // why a step cannot be made; the steps before it still can
  int64_t error_step_ = 0;
  JoinedThreads threads_;
};

}  // namespace owt

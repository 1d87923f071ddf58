// Batches made ready ahead of the step by threads of their own.
//
// Step s of an epoch takes the samples order[s * batch .. min(size, (s + 1) * batch)) of epoch_order()
// (data/order.h); the last step of an epoch may be smaller. Epochs follow each other without end. Of each
// step a loader makes the rows that settings.rows() names, in order, so that the loaders of all ranks
// together make the step exactly once. A batch is a function of the settings: the number of threads and slots
// changes nothing.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/augment.h"
#include "data/batch.h"
#include "data/dataset.h"

namespace owt {

struct LoaderSettings {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const Augmenter> augmenter;
  int64_t batch = 0;  // rows of a whole step over all ranks, >= 1
  uint64_t seed = 0;
  bool training = true;  // false: samples in order, augmenter's evaluation images, no randomness
  bool shuffle = true;   // in training
  int threads = 1;       // >= 1
  int slots = 3;         // batches in memory, >= 2: the one handed out and those made ahead
  int64_t epoch = 0,
          step_in_epoch = 0;  // where to start; a step behind an epoch's last one starts the next epoch
  // The rows of a step of so many rows that this loader makes, within [0, step_rows); empty: all of them.
  // Called by one thread at a time.
  std::function<Slice(int64_t step_rows)> rows{};
};

// Of a data set of `size` samples, the last step counted in full.
int64_t steps_per_epoch(int64_t size, int64_t batch);

class Loader : public BatchSource {
 public:
  // Throws Error for an empty data set or settings out of range. Starts loading at once.
  explicit Loader(LoaderSettings settings);
  ~Loader() override;  // waits for the few rows that are being loaded

  const Batch& next() override;
  int64_t steps_per_epoch() const override { return steps_per_epoch_; }

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  struct Slot {
    Batch batch;
    Tensor images, labels;  // for the largest step
    int64_t chunks_done = 0;
  };
  // A part of a step that one thread makes.
  struct Chunk {
    Slot* slot = nullptr;
    int64_t epoch = 0;
    Slice rows;         // of the slot
    int64_t first = 0;  // place in `order` of the slot's row 0
    Order order;
  };

  int64_t step_rows(int64_t step_in_epoch) const;
  Slice my_rows(int64_t step_rows) const;
  void allocate_slots();
  void work();
  bool claim(Chunk& chunk);  // false: stop
  void begin_step(Slot& slot, int64_t step);
  void load(const Chunk& chunk, std::vector<uint8_t>& pixels) const;
  void stop_with(std::exception_ptr error);

  LoaderSettings settings_;
  int64_t size_ = 0, steps_per_epoch_ = 0, first_step_ = 0, chunks_per_step_ = 1;

  std::mutex mutex_;  // guards all below but the contents of tensors
  std::condition_variable room_, ready_;
  std::vector<Slot> slots_;
  int64_t claimed_ = 0;   // chunks, counted over all steps
  int64_t handed_ = 0;    // steps given to the caller; steps are counted from the first one made here
  int64_t released_ = 0;  // steps whose slots are free again
  int64_t order_epoch_ = -1;
  Order order_;
  bool stop_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace owt

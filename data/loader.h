// Prepares batches ahead of the step on its own threads.
//
// data/steps.h defines the steps and their order. A loader makes the rows of each step that settings.rows() names, in
// order, so that the loaders of all ranks together make each step exactly once. A batch depends on the settings only,
// except the number of threads and slots.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "data/augment.h"
#include "data/batch.h"
#include "data/corrupt_records.h"
#include "data/dataset.h"
#include "data/decoder_trial.h"
#include "data/load_stages.h"
#include "data/order.h"
#include "data/steps.h"
#include "src/system/joined_threads.h"

namespace owt {

struct LoaderSettings {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const Augmenter> augmenter;  // null: batches hold the images' bytes as read
  DType images = DType::kF32;                  // type of the augmenter's output, kF32 or kBF16
  // In training a damaged record is replaced by the next one in the epoch's order (after the last, the first), and
  // recorded here. If this is null, and in evaluation, a damaged record is an error.
  std::shared_ptr<CorruptRecords> corrupt{};
  // Receives the time of the stages of every image. Null: they are not measured.
  std::shared_ptr<LoadRecord> record{};
  int64_t batch = 0;  // rows of a whole step over all ranks, >= 1
  uint64_t seed = 0;
  bool training = true;                    // false: samples in order, augmenter's evaluation images, no randomness
  bool shuffle = true;                     // in training
  Sampling sampling = Sampling::kUniform;  // in training; kBalanced needs shuffle
  int threads = 1;                         // >= 1
  int slots = 3;                           // batches in memory, more than `held`: handed out or prepared
  int held = 1;                            // number of the latest batches handed out that remain valid, >= 1
  Views views{};                           // in evaluation: every step is repeated once per view
  int64_t epoch = 0,
          images_in_epoch = 0;      // start: the epoch, and how many of its images are done
  RowsOfStep rows{};                // may be called from several threads
  Device reader = Device::kCpu;     // device that copies from the batches asynchronously
  Decoder decoder = Decoder::kCpu;  // decodes training photographs; for make_batches() (data/device_batches.h)
  // Whether rows of a step, numbered from the first one made, may hold JPEG files (Batch::files). Null: of none. Only
  // without augmenter; called from several threads.
  std::function<bool(int64_t step)> files{};
};

// The orders in which batches with these settings show the images: in evaluation the order of the data set.
EpochOrders orders_of(const LoaderSettings& settings);

class Loader : public BatchSource {
 public:
  // Throws Error for an empty data set or settings out of range. Starts loading at once.
  explicit Loader(LoaderSettings settings);
  ~Loader() override;  // waits for rows that are being loaded

  const Batch& next(const Stream& stream) override;  // a stream of any device
  int64_t steps_per_epoch() const override { return steps_.batches_per_epoch(); }
  // Estimated from a sample of the chunks.
  LoaderTimes times() const override;
  bool ready();  // whether next() would return without waiting

 private:
  using Order = std::shared_ptr<const std::vector<SampleDraw>>;

  struct HostBatch {
    Batch batch;
    Tensor images, labels, samples, files;  // for the largest step
    int64_t first = 0;                      // index of row 0 in the epoch's order
    int64_t first_row = 0;                  // index of row 0 in the step
    int64_t chunks_done = 0;
  };
  // A part of a step, made by one thread.
  struct Chunk {
    int64_t step = 0;  // numbered like handed_
    HostBatch* slot = nullptr;
    Slice rows;  // rows of the slot
    Order order;
    bool timed = false;
  };

  void allocate_slots();
  void work();
  bool claim(Chunk& chunk);  // false: stop
  void begin_step(HostBatch& slot, int64_t number);
  Slice rows_of_chunk(const HostBatch& slot, int64_t index) const;
  void load_timed(const Chunk& chunk, std::vector<uint8_t>& pixels);
  void load(const Chunk& chunk, std::vector<uint8_t>& pixels) const;
  template <class T>
  SampleDraw make(const Chunk& chunk, int64_t row, std::vector<uint8_t>& pixels, T* image) const;
  template <class T>
  void mix(const Chunk& chunk, const std::vector<SampleDraw>& draws, std::vector<uint8_t>& pixels, T* images) const;
  SampleDraw read(const Chunk& chunk, int64_t row, uint8_t* pixels, FileRow* file = nullptr) const;
  View view_of(const Batch& batch, const SampleDraw& draw) const;
  int32_t* label_row(HostBatch& slot, int64_t row) const;
  static void release(const HostBatch& slot);
  bool complete(const HostBatch& slot) const;  // whether it holds the whole next batch
  void stop();
  void stop_with(std::exception_ptr error, int64_t step);

  LoaderSettings settings_;
  EpochOrders orders_;
  bool mixes_ = false;  // rows have mixed labels; in training pairs of images are mixed
  LabelRows label_rows_;
  Steps steps_;
  int64_t chunks_per_step_ = 1;

  mutable std::mutex mutex_;  // guards all members below, except the contents of tensors
  std::condition_variable room_, ready_;
  std::vector<HostBatch> slots_;
  int64_t claimed_ = 0;   // chunks, numbered over all steps
  int64_t handed_ = 0;    // steps given to the caller, numbered from the first one made here
  int64_t released_ = 0;  // steps whose slots are free again
  int64_t order_epoch_ = -1;
  Order order_;
  LoaderTimes times_;
  bool stop_ = false;
  std::exception_ptr error_;  // why a step cannot be made; earlier steps are still made
  int64_t error_step_ = 0;
  JoinedThreads threads_;
};

}  // namespace owt

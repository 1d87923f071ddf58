// The samples of each step, and the part of one rank.
//
// Step s of an epoch takes the samples order[s * batch .. min(size, (s + 1) * batch)) of epoch_order() (data/order.h);
// the last step of an epoch may be smaller. Epochs follow each other without limit.
#pragma once

#include <cstdint>
#include <functional>

#include "data/dataset.h"
#include "src/core/shape.h"

namespace owt {

// The rows that a rank makes in a step of `step_rows` rows, within [0, step_rows); empty: all of them.
using RowsOfStep = std::function<Slice(int64_t step_rows)>;

// Number of steps of `size` samples, including a smaller last one.
int64_t steps_per_epoch(int64_t size, int64_t batch);

class Steps {
 public:
  // A step of this rank.
  struct RankStep {
    int64_t epoch = 0, step_in_epoch = 0;  // step_in_epoch counts whole steps
    int64_t step_rows = 0;                 // rows of all ranks
    int64_t first = 0;                     // index of their first row in the epoch's order
    Slice places;                          // this rank's rows in the epoch's order
    int view = 0;                          // in evaluation: View::number
    int64_t count() const { return places.size(); }
  };

  Steps() = default;
  // `batch`: rows of a whole step over all ranks, >= 1. Numbering starts in an epoch of which `done` samples are done,
  // in steps of any size: the first step begins at the next sample, or at the next epoch if there is none. `views`:
  // every step is repeated once per view. Throws Error for an empty data set.
  Steps(int64_t size, int64_t batch, RowsOfStep rows, int64_t epoch, int64_t done, const Views& views = {});

  int64_t batches_per_epoch() const { return per_epoch_ * views_.count; }
  int64_t most_rows() const;            // most rows that this rank has in any step
  RankStep step(int64_t number) const;  // the batch with this number, numbered from the start

 private:
  Slice mine(int64_t step_rows) const;
  int64_t step_rows(int64_t first) const;

  int64_t size_ = 0, batch_ = 0, per_epoch_ = 0;
  int64_t epoch_ = 0, done_ = 0, first_steps_ = 0;  // start of the numbering; remaining steps of that epoch
  RowsOfStep rows_;
  Views views_;
};

}  // namespace owt

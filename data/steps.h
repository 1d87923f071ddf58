// Which samples of a data set a step takes, and which of them one rank.
//
// Step s of an epoch takes the samples order[s * batch .. min(size, (s + 1) * batch)) of epoch_order()
// (data/order.h); the last step of an epoch may be smaller. Epochs follow each other without end.
#pragma once

#include <cstdint>
#include <functional>

#include "data/dataset.h"
#include "src/core/shape.h"

namespace owt {

// The rows of a step of so many rows that a rank makes, within [0, step_rows); empty: all of them.
using RowsOfStep = std::function<Slice(int64_t step_rows)>;

// How many steps `size` samples make, the last one counted in full.
int64_t steps_per_epoch(int64_t size, int64_t batch);

class Steps {
 public:
  // A step of this rank.
  struct RankStep {
    int64_t epoch = 0, step_in_epoch = 0;  // the latter counted by whole steps
    int64_t step_rows = 0;                 // those of all ranks
    int64_t first = 0;                     // place in the epoch's order of the first of them
    Slice places;                          // in the epoch's order, of this rank's rows
    int view = 0;                          // in evaluation: View::number
    int64_t count() const { return places.size(); }
  };

  Steps() = default;
  // `batch`: rows of a whole step over all ranks, >= 1. Counting starts in an epoch of which `done` samples are done,
  // in steps of any size: the first step begins at the next sample, and where there is none, at the next epoch.
  // `views`: every step comes so often, as each of them shows it. Throws Error for an empty data set.
  Steps(int64_t size, int64_t batch, RowsOfStep rows, int64_t epoch, int64_t done, const Views& views = {});

  int64_t batches_per_epoch() const { return per_epoch_ * views_.count; }
  int64_t most_rows() const;            // that this rank has in any step
  RankStep step(int64_t number) const;  // the batch of this number, counted from the start

 private:
  Slice mine(int64_t step_rows) const;
  int64_t step_rows(int64_t first) const;

  int64_t size_ = 0, batch_ = 0, per_epoch_ = 0;
  int64_t epoch_ = 0, done_ = 0, first_steps_ = 0;  // where counting starts; steps that are left of that epoch
  RowsOfStep rows_;
  Views views_;
};

}  // namespace owt

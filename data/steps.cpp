#include "data/steps.h"

#include <algorithm>
#include <utility>

#include "src/core/check.h"

namespace owt {

int64_t steps_per_epoch(int64_t size, int64_t batch) { return (size + batch - 1) / batch; }

Steps::Steps(int64_t size, int64_t batch, RowsOfStep rows, int64_t epoch, int64_t step_in_epoch, const Views& views)
    : size_(size), batch_(batch), rows_(std::move(rows)), views_(views) {
  OWT_CHECK(views.valid());
  OWT_CHECK(batch >= 1 && epoch >= 0 && step_in_epoch >= 0);
  if (size == 0) fail("the data set holds no images");
  per_epoch_ = steps_per_epoch(size, batch);
  OWT_CHECK(step_in_epoch <= per_epoch_, "step ", step_in_epoch, " of an epoch of ", per_epoch_, " steps");
  first_ = epoch * per_epoch_ + step_in_epoch;
}

int64_t Steps::most_rows() const { return std::max(mine(step_rows(0)).size(), mine(step_rows(per_epoch_ - 1)).size()); }

Steps::RankStep Steps::step(int64_t number) const {
  RankStep rows;
  const int64_t step = first_ + number / views_.count;
  rows.view = views_.first + static_cast<int>(number % views_.count);
  rows.epoch = step / per_epoch_;
  rows.step_in_epoch = step % per_epoch_;
  rows.step_rows = step_rows(rows.step_in_epoch);
  const Slice part = mine(rows.step_rows);
  const int64_t begin = rows.step_in_epoch * batch_;
  rows.places = {begin + part.begin, begin + part.end};
  return rows;
}

Slice Steps::mine(int64_t step_rows) const {
  const Slice rows = rows_ ? rows_(step_rows) : Slice{0, step_rows};
  OWT_CHECK(0 <= rows.begin && rows.begin <= rows.end && rows.end <= step_rows, "rows ", rows.begin, " to ", rows.end,
            " of a step of ", step_rows);
  return rows;
}

int64_t Steps::step_rows(int64_t step_in_epoch) const { return std::min(batch_, size_ - step_in_epoch * batch_); }

}  // namespace owt

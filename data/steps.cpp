#include "data/steps.h"

#include <algorithm>
#include <utility>

#include "src/system/check.h"

namespace owt {

int64_t steps_per_epoch(int64_t size, int64_t batch) { return (size + batch - 1) / batch; }

Steps::Steps(int64_t size, int64_t batch, RowsOfStep rows, int64_t epoch, int64_t done, const Views& views)
    : size_(size), batch_(batch), epoch_(epoch), done_(done), rows_(std::move(rows)), views_(views) {
  OWT_CHECK(views.valid());
  OWT_CHECK(batch >= 1 && epoch >= 0 && done >= 0);
  if (size == 0) fail("the data set holds no images");
  OWT_CHECK(done <= size, done, " images of an epoch of ", size);
  if (done == size) ++epoch_, done_ = 0;
  per_epoch_ = steps_per_epoch(size, batch);
  first_steps_ = steps_per_epoch(size - done_, batch);
}

int64_t Steps::most_rows() const {
  int64_t most = 0;
  for (const int64_t first : {int64_t{0}, (per_epoch_ - 1) * batch_, done_ + (first_steps_ - 1) * batch_})
    most = std::max(most, mine(step_rows(first)).size());
  return most;
}

Steps::RankStep Steps::step(int64_t number) const {
  RankStep rows;
  const int64_t step = number / views_.count, later = step - first_steps_;
  rows.view = views_.first + static_cast<int>(number % views_.count);
  rows.epoch = later < 0 ? epoch_ : epoch_ + 1 + later / per_epoch_;
  rows.first = later < 0 ? done_ + step * batch_ : later % per_epoch_ * batch_;
  rows.step_in_epoch = rows.first / batch_;
  rows.step_rows = step_rows(rows.first);
  const Slice part = mine(rows.step_rows);
  rows.places = {rows.first + part.begin, rows.first + part.end};
  return rows;
}

Slice Steps::mine(int64_t step_rows) const {
  const Slice rows = rows_ ? rows_(step_rows) : Slice{0, step_rows};
  OWT_CHECK(0 <= rows.begin && rows.begin <= rows.end && rows.end <= step_rows, "rows ", rows.begin, " to ", rows.end,
            " of a step of ", step_rows);
  return rows;
}

int64_t Steps::step_rows(int64_t first) const { return std::min(batch_, size_ - first); }

}  // namespace owt

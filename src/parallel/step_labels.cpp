#include "src/parallel/step_labels.h"

#include <algorithm>

#include "data/batch.h"
#include "src/plan/plan_rows.h"

namespace owt {

StepLabels::StepLabels(const Plan& plan, const StepRows& rows, int rank, const Groups& groups)
    : comm_(groups.wire(label_group(plan, rows, rank).group)), rounds_(rows.rounds(rank)) {
  const LabelGroup gathers = label_group(plan, rows, rank);
  first_of_rounds_ = rank - plan.place_of(rank) - gathers.first;
  for (int r = 0; r < gathers.ranks; ++r) rows_.push_back(rows.of(gathers.first + r).size());
  int64_t most = 0;
  for (const Round& round : rounds_) most = std::max(most, rows_of(round));
  const LossSettings& loss = plan.request.loss;
  const auto labels = [&](int64_t count) {
    return Tensor(shape_of_labels(loss.label_rows(), count), DType::kI32, plan.request.on.device);
  };
  mine_ = labels(gathers.most_rows);
  mine_.zero();  // the padding travels too
  all_ = labels(gathers.most_rows * gathers.ranks);
  of_round_ = labels(most);
  if (loss.samples()) of_step_ = labels(all_.shape().rows());
}

void StepLabels::start(const Tensor& mine, const Stream& stream) {
  mine_.rows(0, mine.shape().rows()).copy_from(mine, stream);
  gathered_ = comm_.all_gather(mine_, all_, stream.record());
}

Tensor StepLabels::wait(int round, const Stream& stream) {
  stream.wait(gathered_);
  int64_t row = 0;
  for (const RowRange& range : rounds_[static_cast<size_t>(round)]) {
    of_rank(first_of_rounds_ + range.rank, {range.begin, range.end}, of_round_, row, stream);
    row += range.size();
  }
  return of_round_.rows(0, row);
}

Tensor StepLabels::of_step(const Stream& stream) {
  int64_t row = 0;
  for (size_t r = 0; r < rows_.size(); ++r) {
    of_rank(static_cast<int>(r), {0, rows_[r]}, of_step_, row, stream);
    row += rows_[r];
  }
  return of_step_.rows(0, row);
}

void StepLabels::of_rank(int rank, const Slice& rows, Tensor& to, int64_t row, const Stream& stream) const {
  const int64_t first = rank * mine_.shape().rows();
  to.rows(row, row + rows.size()).copy_from(all_.rows(first + rows.begin, first + rows.end), stream);
}

}  // namespace owt

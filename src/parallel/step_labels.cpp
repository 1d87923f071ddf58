#include "src/parallel/step_labels.h"

#include <algorithm>

namespace owt {

StepLabels::StepLabels(const Plan& plan, const StepRows& rows, int rank, Communicator& comm) : comm_(comm) {
  rounds_ = rows.rounds(rank);
  int64_t most = 0;
  for (const Round& round : rounds_) most = std::max(most, rows_of(round));
  const LossSettings& loss = plan.request.loss;
  const auto labels = [&](int64_t count) {
    const Shape shape = loss.mixed_labels ? Shape{count, loss.label_numbers()} : Shape{count};
    return Tensor(shape, DType::kI32, plan.request.on.device);
  };
  mine_ = labels(rows.most_beside(rank));
  mine_.zero();  // the padding travels too
  all_ = labels(rows.most_beside(rank) * plan.model_ranks);
  of_round_ = labels(most);
  if (loss.samples()) of_rounds_ = labels(all_.shape().rows());
}

void StepLabels::start(const Tensor& mine, const Stream& stream) {
  mine_.rows(0, mine.shape().rows()).copy_from(mine, stream);
  gathered_ = comm_.all_gather(mine_, all_, stream.record());
}

Tensor StepLabels::wait(int round, const Stream& stream) {
  stream.wait(gathered_);
  return of_round_.rows(0, copy(rounds_[static_cast<size_t>(round)], of_round_, stream));
}

Tensor StepLabels::of_all_rounds(const Stream& stream) {
  int64_t rows = 0;
  for (const Round& round : rounds_) rows += copy(round, of_rounds_.rows(rows, of_rounds_.shape().rows()), stream);
  return of_rounds_.rows(0, rows);
}

int64_t StepLabels::copy(const Round& round, Tensor to, const Stream& stream) const {
  int64_t row = 0;
  for (const RowRange& range : round) {
    const int64_t first = range.rank * mine_.shape().rows();
    to.rows(row, row + range.size()).copy_from(all_.rows(first + range.begin, first + range.end), stream);
    row += range.size();
  }
  return row;
}

}  // namespace owt

#include "src/parallel/step_labels.h"

#include <algorithm>

namespace owt {

StepLabels::StepLabels(const Plan& plan, const StepRows& rows, int rank, Communicator& comm) : comm_(comm) {
  rounds_ = rows.rounds(rank);
  int64_t most = 0;
  for (const Round& round : rounds_) most = std::max(most, rows_of(round));
  const auto labels = [&](int64_t count) { return Tensor({count}, DType::kI32, plan.request.on.device); };
  mine_ = labels(rows.most_beside(rank));
  mine_.zero();  // the padding travels too
  all_ = labels(rows.most_beside(rank) * plan.model_ranks);
  of_round_ = labels(most);
}

void StepLabels::start(const Tensor& mine, const Stream& stream) {
  mine_.rows(0, mine.shape().rows()).copy_from(mine, stream);
  gathered_ = comm_.all_gather(mine_, all_, stream.record());
}

Tensor StepLabels::wait(int round, const Stream& stream) {
  stream.wait(gathered_);
  int64_t row = 0;
  for (const RowRange& range : rounds_[static_cast<size_t>(round)]) {
    const int64_t first = range.rank * mine_.elements();
    of_round_.rows(row, row + range.size()).copy_from(all_.rows(first + range.begin, first + range.end), stream);
    row += range.size();
  }
  return of_round_.rows(0, row);
}

}  // namespace owt

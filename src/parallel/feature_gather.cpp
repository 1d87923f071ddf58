#include "src/parallel/feature_gather.h"

#include "src/core/columns.h"
#include "src/core/poison.h"
#include "src/plan/layer_plan.h"

namespace owt {

FeatureGather::FeatureGather(std::vector<Slice> parts, int64_t rows, const Compute& on, Communicator& comm,
                             const Shape& row)
    : parts_(std::move(parts)), mine_(parts_.at(static_cast<size_t>(comm.rank()))), comm_(comm) {
  OWT_CHECK_EQ(static_cast<int>(parts_.size()), comm.ranks());
  const Shape whole = row.rank() > 0 ? row : Shape{columns()};
  rows_ = rows * (whole.elements() / columns());
  const auto make = [&](const Shape& shape) { return Tensor(shape, activation_type(on.precision), on.device); };
  whole_ = make(whole.batch_of(rows));
  mine_columns_ = make(with_columns(whole, mine_.size()).batch_of(rows));
  blocks_ = make({comm.ranks(), rows_, widest()});
  if (!even()) {
    padded_ = make({rows_, widest()});
    padded_.zero();
    blocks_.zero();  // the padding of every block stays zero
  }
}

Tensor FeatureGather::block(size_t rank) const {
  return blocks_.part(static_cast<int64_t>(rank) * rows_ * widest(), {rows_, widest()});
}

void FeatureGather::start_gather(const Tensor& mine, const Stream& stream) {
  const Tensor from = flat(mine, mine_.size());
  poison(whole_, stream);
  if (!even()) copy_columns(from, 0, padded_, 0, mine_.size(), stream);
  arrived_ = comm_.all_gather(even() ? from : padded_, blocks_, stream.record());
}

const Tensor& FeatureGather::finish_gather(const Stream& stream) {
  stream.wait(arrived_);
  Tensor whole = flat(whole_, columns());
  for (size_t r = 0; r < parts_.size(); ++r)
    copy_columns(block(r), 0, whole, parts_[r].begin, parts_[r].size(), stream);
  if (even()) poison(blocks_, stream);
  return whole_;
}

void FeatureGather::start_reduce(const Tensor& summand, const Stream& stream) {
  const Tensor from = flat(summand, columns());
  for (size_t r = 0; r < parts_.size(); ++r) {
    Tensor to = block(r);
    copy_columns(from, parts_[r].begin, to, 0, parts_[r].size(), stream);
  }
  Tensor mine = flat(mine_columns_, mine_.size());
  poison(mine_columns_, stream);
  arrived_ = comm_.reduce_scatter(blocks_, even() ? mine : padded_, stream.record());
}

const Tensor& FeatureGather::finish_reduce(const Stream& stream) {
  stream.wait(arrived_);
  Tensor mine = flat(mine_columns_, mine_.size());
  if (even())
    poison(blocks_, stream);
  else
    copy_columns(padded_, 0, mine, 0, mine_.size(), stream);
  return mine_columns_;
}

const Tensor& FeatureGather::take(const Tensor& whole, const Stream& stream) {
  Tensor mine = flat(mine_columns_, mine_.size());
  copy_columns(flat(whole, columns()), mine_.begin, mine, 0, mine_.size(), stream);
  return mine_columns_;
}

}  // namespace owt

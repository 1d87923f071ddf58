#include "src/parallel/feature_gather.h"

#include "src/parallel/columns.h"

namespace owt {

FeatureGather::FeatureGather(std::vector<Slice> parts, int64_t rows, const Compute& on, Communicator& comm)
    : parts_(std::move(parts)), mine_(parts_.at(static_cast<size_t>(comm.rank()))), rows_(rows), comm_(comm) {
  OWT_CHECK_EQ(static_cast<int>(parts_.size()), comm.ranks());
  const auto make = [&](const Shape& shape) { return Tensor(shape, activation_type(on.precision), on.device); };
  whole_ = make({rows, columns()});
  mine_columns_ = make({rows, mine_.size()});
  blocks_ = make({comm.ranks(), rows, widest()});
  if (!even()) {
    padded_ = make({rows, widest()});
    padded_.zero();
    blocks_.zero();  // the padding of every block stays zero
  }
}

Tensor FeatureGather::block(size_t rank) const {
  return blocks_.part(static_cast<int64_t>(rank) * rows_ * widest(), {rows_, widest()});
}

void FeatureGather::start_gather(const Tensor& mine, const Stream& stream) {
  if (!even()) copy_columns(mine, 0, padded_, 0, mine_.size(), stream);
  arrived_ = comm_.all_gather(even() ? mine : padded_, blocks_, stream.record());
}

const Tensor& FeatureGather::finish_gather(const Stream& stream) {
  stream.wait(arrived_);
  for (size_t r = 0; r < parts_.size(); ++r)
    copy_columns(block(r), 0, whole_, parts_[r].begin, parts_[r].size(), stream);
  return whole_;
}

void FeatureGather::start_reduce(const Tensor& summand, const Stream& stream) {
  for (size_t r = 0; r < parts_.size(); ++r) {
    Tensor to = block(r);
    copy_columns(summand, parts_[r].begin, to, 0, parts_[r].size(), stream);
  }
  arrived_ = comm_.reduce_scatter(blocks_, even() ? mine_columns_ : padded_, stream.record());
}

const Tensor& FeatureGather::finish_reduce(const Stream& stream) {
  stream.wait(arrived_);
  if (!even()) copy_columns(padded_, 0, mine_columns_, 0, mine_.size(), stream);
  return mine_columns_;
}

const Tensor& FeatureGather::take(const Tensor& whole, const Stream& stream) {
  copy_columns(whole, mine_.begin, mine_columns_, 0, mine_.size(), stream);
  return mine_columns_;
}

}  // namespace owt

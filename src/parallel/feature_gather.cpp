#include "src/parallel/feature_gather.h"

#include "src/parallel/columns.h"

namespace owt {

FeatureGather::FeatureGather(std::string name, std::vector<Slice> parts, int64_t rows, const Compute& on,
                             Communicator& comm, Profiler* profiler)
    : name_(std::move(name)),
      gradient_name_(name_ + " gradient"),
      parts_(std::move(parts)),
      mine_(parts_.at(static_cast<size_t>(comm.rank()))),
      rows_(rows),
      comm_(comm),
      profiler_(profiler) {
  OWT_CHECK_EQ(static_cast<int>(parts_.size()), comm.ranks());
  const auto make = [&](const Shape& shape) { return Tensor(shape, activation_type(on.precision), on.device); };
  whole_ = make({rows, columns()});
  my_gradient_ = make({rows, mine_.size()});
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

const Tensor& FeatureGather::forward(const Tensor& mine, const Stream& stream) {
  const Profiler::Scope scope(profiler_, name_, Phase::kTransfer);
  if (!even()) copy_columns(mine, 0, padded_, 0, mine_.size(), stream);
  stream.wait(comm_.all_gather(even() ? mine : padded_, blocks_, stream.record()));
  for (size_t r = 0; r < parts_.size(); ++r)
    copy_columns(block(r), 0, whole_, parts_[r].begin, parts_[r].size(), stream);
  return whole_;
}

void FeatureGather::start_backward(const Tensor& gradient, Layout from, const Stream& stream) {
  const Profiler::Scope scope(profiler_, gradient_name_, Phase::kTransfer);
  unpack_ = false;
  if (from == Layout::kReplicated) {
    copy_columns(gradient, mine_.begin, my_gradient_, 0, mine_.size(), stream);
    return;
  }
  OWT_CHECK(from == Layout::kPartial);
  for (size_t r = 0; r < parts_.size(); ++r) {
    Tensor to = block(r);
    copy_columns(gradient, parts_[r].begin, to, 0, parts_[r].size(), stream);
  }
  Tensor& target = even() ? my_gradient_ : padded_;
  summed_ = comm_.reduce_scatter(blocks_, target, stream.record());
  unpack_ = !even();
}

const Tensor& FeatureGather::finish_backward(const Stream& stream) {
  const Profiler::Scope scope(profiler_, gradient_name_, Phase::kTransfer);
  stream.wait(summed_);
  summed_ = {};
  if (unpack_) copy_columns(padded_, 0, my_gradient_, 0, mine_.size(), stream);
  return my_gradient_;
}

}  // namespace owt

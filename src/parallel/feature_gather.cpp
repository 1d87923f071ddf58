#include "src/parallel/feature_gather.h"

#include "src/core/columns.h"
#include "src/core/conversions.h"
#include "src/core/poison.h"
#include "src/plan/layer_plan.h"

namespace owt {

FeatureGather::FeatureGather(std::vector<Slice> parts, int64_t rows, const Compute& on, Communicator& comm,
                             const Shape& row, std::optional<DType> summand)
    : parts_(std::move(parts)), mine_(parts_.at(static_cast<size_t>(comm.rank()))), comm_(comm) {
  OWT_CHECK_EQ(static_cast<int>(parts_.size()), comm.ranks());
  const Shape whole = row.rank() > 0 ? row : Shape{columns()};
  rows_ = rows * (whole.elements() / columns());
  const auto make = [&](const Shape& shape) { return Tensor(shape, activation_type(on.precision), on.device); };
  whole_ = make(whole.batch_of(rows));
  mine_columns_ = make(with_columns(whole, mine_.size()).batch_of(rows));
  gathered_ = reduced_ = transit(activation_type(on.precision), on.device);
  sums_ = mine_columns_;
  if (summand.value_or(whole_.dtype()) == whole_.dtype()) return;
  reduced_ = transit(*summand, on.device);
  sums_ = Tensor(mine_columns_.shape(), *summand, on.device);
}

FeatureGather::Transit FeatureGather::transit(DType type, Device device) const {
  Transit made{Tensor({comm_.ranks(), rows_, widest()}, type, device), {}};
  if (even()) return made;
  made.padded = Tensor({rows_, widest()}, type, device);
  made.padded.zero();
  made.blocks.zero();  // the padding of every block stays zero
  return made;
}

Tensor FeatureGather::block(const Transit& of, size_t rank) const {
  return of.blocks.part(static_cast<int64_t>(rank) * rows_ * widest(), {rows_, widest()});
}

void FeatureGather::start_gather(const Tensor& mine, const Stream& stream) {
  const Tensor from = flat(mine, mine_.size());
  poison(whole_, stream);
  if (!even()) copy_columns(from, 0, gathered_.padded, 0, mine_.size(), stream);
  arrived_ = comm_.all_gather(even() ? from : gathered_.padded, gathered_.blocks, stream.record());
}

const Tensor& FeatureGather::finish_gather(const Stream& stream) {
  stream.wait(arrived_);
  Tensor whole = flat(whole_, columns());
  for (size_t r = 0; r < parts_.size(); ++r)
    copy_columns(block(gathered_, r), 0, whole, parts_[r].begin, parts_[r].size(), stream);
  if (even()) poison(gathered_.blocks, stream);
  return whole_;
}

void FeatureGather::start_reduce(const Tensor& summand, const Stream& stream) {
  const Tensor from = flat(summand, columns());
  for (size_t r = 0; r < parts_.size(); ++r) {
    Tensor to = block(reduced_, r);
    copy_columns(from, parts_[r].begin, to, 0, parts_[r].size(), stream);
  }
  Tensor mine = flat(sums_, mine_.size());
  poison(sums_, stream);
  arrived_ = comm_.reduce_scatter(reduced_.blocks, even() ? mine : reduced_.padded, stream.record());
}

const Tensor& FeatureGather::finish_reduce(const Stream& stream) {
  stream.wait(arrived_);
  Tensor mine = flat(sums_, mine_.size());
  if (even())
    poison(reduced_.blocks, stream);
  else
    copy_columns(reduced_.padded, 0, mine, 0, mine_.size(), stream);
  if (sums_.dtype() == DType::kF64) round_to_f32(Cpu{}, sums_, mine_columns_, stream);
  return mine_columns_;
}

const Tensor& FeatureGather::take(const Tensor& whole, const Stream& stream) {
  Tensor mine = flat(mine_columns_, mine_.size());
  copy_columns(flat(whole, columns()), mine_.begin, mine, 0, mine_.size(), stream);
  return mine_columns_;
}

}  // namespace owt

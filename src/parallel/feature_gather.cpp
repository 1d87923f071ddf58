#include "src/parallel/feature_gather.h"

#include <cstring>

#include "src/core/threads.h"

namespace owt {
namespace {

// Copies `width` columns of `rows` rows; strides in elements.
void copy_columns(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t width) {
  if (width == 0) return;
  parallel_for(rows, std::max<int64_t>(1, (1 << 16) / width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<size_t>(width) * sizeof(float));
  });
}

}  // namespace

FeatureGather::FeatureGather(std::string name, std::vector<Slice> parts, int64_t rows, Communicator& comm,
                             Profiler* profiler)
    : name_(std::move(name)),
      gradient_name_(name_ + " gradient"),
      parts_(std::move(parts)),
      rows_(rows),
      comm_(comm),
      profiler_(profiler) {
  OWT_CHECK_EQ(static_cast<int>(parts_.size()), comm.ranks());
  whole_ = Tensor({rows, columns()});
  my_gradient_ = Tensor({rows, parts_[static_cast<size_t>(comm.rank())].size()});
  blocks_ = Tensor({comm.ranks(), rows, widest()});
  if (!even()) {
    padded_ = Tensor({rows, widest()});
    padded_.zero();
    blocks_.zero();  // the padding of every block stays zero
  }
}

const Tensor& FeatureGather::forward(const Tensor& mine, const Stream& stream) {
  const Profiler::Scope scope(profiler_, name_, Phase::kTransfer);
  const int64_t width = parts_[static_cast<size_t>(comm_.rank())].size();
  if (!even()) copy_columns(mine.data(), width, padded_.data(), widest(), rows_, width);
  stream.wait(comm_.all_gather(even() ? mine : padded_, blocks_, stream.record()));
  for (size_t r = 0; r < parts_.size(); ++r)
    copy_columns(blocks_.data() + static_cast<int64_t>(r) * rows_ * widest(), widest(), whole_.data() + parts_[r].begin,
                 columns(), rows_, parts_[r].size());
  return whole_;
}

const Tensor& FeatureGather::backward(const Tensor& gradient, Layout from, const Stream& stream) {
  const Slice mine = parts_[static_cast<size_t>(comm_.rank())];
  if (from == Layout::kReplicated) {
    const Profiler::Scope scope(profiler_, gradient_name_, Phase::kTransfer);
    copy_columns(gradient.data() + mine.begin, columns(), my_gradient_.data(), mine.size(), rows_, mine.size());
    return my_gradient_;
  }
  OWT_CHECK(from == Layout::kPartial);
  const Profiler::Scope scope(profiler_, gradient_name_, Phase::kTransfer);
  for (size_t r = 0; r < parts_.size(); ++r)
    copy_columns(gradient.data() + parts_[r].begin, columns(),
                 blocks_.data() + static_cast<int64_t>(r) * rows_ * widest(), widest(), rows_, parts_[r].size());
  Tensor& target = even() ? my_gradient_ : padded_;
  stream.wait(comm_.reduce_scatter(blocks_, target, stream.record()));
  if (!even()) copy_columns(padded_.data(), widest(), my_gradient_.data(), mine.size(), rows_, mine.size());
  return my_gradient_;
}

}  // namespace owt

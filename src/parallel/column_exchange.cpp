#include "src/parallel/column_exchange.h"

#include <algorithm>
#include <numeric>

#include "src/core/columns.h"

namespace owt {

ColumnExchange::ColumnExchange(std::vector<int64_t> rows, std::vector<Slice> columns, const Compute& on,
                               Communicator& comm)
    : rows_(std::move(rows)),
      columns_(std::move(columns)),
      most_rows_(*std::max_element(rows_.begin(), rows_.end())),
      widest_(columns_.front().size()),
      rank_(static_cast<size_t>(comm.rank())),
      comm_(comm) {
  OWT_CHECK_EQ(static_cast<int>(rows_.size()), comm.ranks());
  OWT_CHECK_EQ(static_cast<int>(columns_.size()), comm.ranks());
  width_ = columns_[rank_].size();
  const auto make = [&](const Shape& shape) { return Tensor(shape, activation_type(on.precision), on.device); };
  sent_ = make({comm.ranks(), most_rows_ * widest_});
  received_ = make({comm.ranks(), most_rows_ * widest_});
  received_gradient_ = make({comm.ranks(), most_rows_ * widest_});
  sent_.zero();  // including the padding
  gradient_ = make({all_rows(), width_});
  batch_ = even() ? received_.reshaped({all_rows(), width_}) : make({all_rows(), width_});
}

bool ColumnExchange::even() const {
  const bool rows = std::all_of(rows_.begin(), rows_.end(), [&](int64_t count) { return count == most_rows_; });
  return rows && columns_.back().size() == widest_;
}

int64_t ColumnExchange::all_rows() const { return std::accumulate(rows_.begin(), rows_.end(), int64_t{0}); }

// The first `width` columns of a rank's block.
Tensor ColumnExchange::block(Tensor& blocks, size_t rank, int64_t width) const {
  return blocks.part(static_cast<int64_t>(rank) * most_rows_ * widest_, {most_rows_, width});
}

void ColumnExchange::start_forward(const Tensor& mine, const Stream& stream) {
  const Tensor flat = mine.reshaped({rows_[rank_], columns_.back().end});
  for (size_t r = 0; r < columns_.size(); ++r) {
    Tensor to = block(sent_, r, columns_[r].size()).rows(0, rows_[rank_]);
    copy_columns(flat, columns_[r].begin, to, 0, columns_[r].size(), stream);
  }
  exchanged_ = comm_.all_to_all(sent_, received_, stream.record());
}

const Tensor& ColumnExchange::finish_forward(const Stream& stream) {
  stream.wait(exchanged_);
  if (even()) return batch_;
  int64_t first = 0;
  for (size_t r = 0; r < rows_.size(); ++r) {
    batch_.rows(first, first + rows_[r]).copy_from(block(received_, r, width_).rows(0, rows_[r]), stream);
    first += rows_[r];
  }
  return batch_;
}

void ColumnExchange::start_backward(const Stream& stream) {
  int64_t first = 0;
  for (size_t r = 0; r < rows_.size(); ++r) {
    block(sent_, r, width_).rows(0, rows_[r]).copy_from(gradient_.rows(first, first + rows_[r]), stream);
    first += rows_[r];
  }
  exchanged_ = comm_.all_to_all(sent_, received_gradient_, stream.record());
}

void ColumnExchange::finish_backward(Tensor& mine, const Stream& stream) {
  stream.wait(exchanged_);
  Tensor flat = mine.reshaped({rows_[rank_], columns_.back().end});
  for (size_t r = 0; r < columns_.size(); ++r) {
    const Tensor from = block(received_gradient_, r, columns_[r].size()).rows(0, rows_[rank_]);
    copy_columns(from, 0, flat, columns_[r].begin, columns_[r].size(), stream);
  }
}

}  // namespace owt

// kBatch -> kFeature and back by all_to_all, for one number of rows on each rank.
//
//   forward:  every rank holds all columns of its own rows; afterwards it holds its own columns of all rows, those of
//             rank 0 first.
//   backward: the mirror image.
// Uneven parts are padded to the largest for the way.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/parallel/plan.h"

namespace owt {

class ColumnExchange {
 public:
  // rows, columns: of every rank. comm must outlive this.
  ColumnExchange(std::vector<int64_t> rows, std::vector<Slice> columns, const Compute& on, Communicator& comm);

  // my rows x all columns -> all rows x my columns; in two halves, with the transfer between them.
  void start_forward(const Tensor& mine, const Stream& stream);
  const Tensor& finish_forward(const Stream& stream);  // valid until the next start_forward

  // Where the gradient of the result goes.
  Tensor& gradient() { return gradient_; }
  void start_backward(const Stream& stream);
  void finish_backward(Tensor& mine, const Stream& stream);  // its gradient: my rows x all columns

 private:
  bool even() const;
  int64_t all_rows() const;
  Tensor block(Tensor& blocks, size_t rank, int64_t width) const;

  std::vector<int64_t> rows_;
  std::vector<Slice> columns_;
  int64_t most_rows_, widest_, width_;  // of all ranks; of mine
  size_t rank_;
  Communicator& comm_;
  Tensor sent_, received_;    // ranks x most rows x widest
  Tensor received_gradient_;  // its own, because the batch is read while the gradient is on its way
  Tensor batch_, gradient_;   // all rows x my columns
  Event exchanged_;
};

}  // namespace owt

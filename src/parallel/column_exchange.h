// kBatch -> kFeature and back by all_to_all, for one number of rows on each rank.
//
//   forward:  every rank starts with all columns of its own rows, and ends with its own columns of all rows, in rank
//             order.
//   backward: the reverse.
// Uneven parts are padded to the largest for transport.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/core/shape.h"

namespace owt {

class ColumnExchange {
 public:
  // rows, columns: one entry for every rank. comm must outlive this.
  ColumnExchange(std::vector<int64_t> rows, std::vector<Slice> columns, const Compute& on, Communicator& comm);

  // my rows x all columns -> all rows x my columns, in two halves with the transfer between them.
  void start_forward(const Tensor& mine, const Stream& stream);
  const Tensor& finish_forward(const Stream& stream);  // valid until the next start_forward

  // The tensor into which the gradient of the result must be written.
  Tensor& gradient() { return gradient_; }
  void start_backward(const Stream& stream);
  // mine: the gradient of start_forward's `mine`, my rows x all columns
  void finish_backward(Tensor& mine, const Stream& stream);

 private:
  bool even() const;
  int64_t all_rows() const;
  Tensor block(Tensor& blocks, size_t rank, int64_t width) const;

  std::vector<int64_t> rows_;
  std::vector<Slice> columns_;
  int64_t most_rows_, widest_, width_;  // largest of all ranks; width_: of this rank
  size_t rank_;
  Communicator& comm_;
  Tensor sent_, received_;    // ranks x most rows x widest
  Tensor received_gradient_;  // separate, because the batch is read while the gradient travels
  Tensor batch_, gradient_;   // all rows x my columns
  Event exchanged_;
};

}  // namespace owt

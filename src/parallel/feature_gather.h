// Conversions from kFeature to kReplicated and back, for one batch size. Columns are features of rows, or channels of
// images, where each pixel counts as a row.
//
//   gather: every rank holds columns parts[rank] of a rows x columns batch; all get the whole batch (all_gather).
//   reduce: the sum over ranks of kPartial sums; each rank gets its own columns (reduce_scatter).
//   take:   this rank's columns of a kReplicated batch; nothing travels.
// The input of a column-split layer is gathered, and its gradient, a partial sum, is reduced. Before a replicated loss
// the gradient is taken. The wrong choice between the two gives gradients K times too large, and training still works.
// A layer that is split by inputs gives a partial sum: the output is reduced and its gradient gathered. Uneven parts
// are padded to the widest for transport.
#pragma once

#include <optional>
#include <vector>

#include "src/comm/communicator.h"
#include "src/core/shape.h"

namespace owt {

class FeatureGather {
 public:
  // row: the whole shape of a row, an image; if empty, a row is its columns. summand: the type of what reduce() adds
  // up; none: the type of activations. comm must outlive this.
  FeatureGather(std::vector<Slice> parts, int64_t rows, const Compute& on, Communicator& comm, const Shape& row = {},
                std::optional<DType> summand = {});

  // rows x parts[rank] -> rows x all, valid until the next gather. Gather and reduce each have two halves, with the
  // transfer between them; only one may be under way at a time.
  void start_gather(const Tensor& mine, const Stream& stream);
  const Tensor& finish_gather(const Stream& stream);
  const Tensor& gathered() const { return whole_; }  // the result of finish_gather()
  // rows x all -> rows x parts[rank], valid until the next reduce or take.
  void start_reduce(const Tensor& summand, const Stream& stream);
  const Tensor& finish_reduce(const Stream& stream);
  const Tensor& take(const Tensor& whole, const Stream& stream);

 private:
  // The data of a transfer.
  struct Transit {
    Tensor blocks;  // ranks x rows x widest
    Tensor padded;  // rows x widest: this rank's block, if parts are uneven
  };

  int64_t columns() const { return parts_.back().end; }
  int64_t widest() const { return parts_.front().size(); }
  bool even() const { return parts_.back().size() == widest(); }
  Transit transit(DType type, Device device) const;
  Tensor block(const Transit& of, size_t rank) const;
  Tensor flat(const Tensor& tensor, int64_t columns) const { return tensor.reshaped({rows_, columns}); }

  std::vector<Slice> parts_;
  Slice mine_;
  int64_t rows_;  // rows, or pixels
  Communicator& comm_;
  Tensor whole_, mine_columns_;
  Transit gathered_, reduced_;  // they share memory, unless summands have another type than activations
  Tensor sums_;                 // this rank's columns of the sum: mine_columns_, or sums that are rounded to it
  Event arrived_;
};

}  // namespace owt

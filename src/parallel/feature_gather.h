// kFeature -> kReplicated and the ways back, for one batch size. Columns are features of rows, or channels of images,
// each pixel of which is as a row.
//
//   gather: every rank holds columns parts[rank] of a rows x columns batch; afterwards all hold all of it (all_gather).
//   reduce: of kPartial summands the sum over ranks of my columns (reduce_scatter).
//   take:   of a kReplicated batch my columns as they are; nothing travels.
// Before a column-split layer the input is gathered and its gradient, a summand, reduced; before a replicated loss the
// gradient is taken: the wrong one of the two is K times too large and still trains. Behind a layer that is split by
// inputs the output, a summand, is reduced and its gradient gathered.
// Uneven parts are padded to the widest for the way.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/parallel/plan.h"

namespace owt {

class FeatureGather {
 public:
  // row: the whole of one, an image or, where it is empty, the columns. comm must outlive this.
  FeatureGather(std::vector<Slice> parts, int64_t rows, const Compute& on, Communicator& comm, const Shape& row = {});

  // rows x parts[rank] -> rows x all, valid until the next gather; in two halves, with the transfer between them, as
  // reduce. One of them at a time is under way.
  void start_gather(const Tensor& mine, const Stream& stream);
  const Tensor& finish_gather(const Stream& stream);
  const Tensor& gathered() const { return whole_; }  // where finish_gather() brings it
  // rows x all -> rows x parts[rank], valid until the next reduce or take.
  void start_reduce(const Tensor& summand, const Stream& stream);
  const Tensor& finish_reduce(const Stream& stream);
  const Tensor& take(const Tensor& whole, const Stream& stream);

 private:
  int64_t columns() const { return parts_.back().end; }
  int64_t widest() const { return parts_.front().size(); }
  bool even() const { return parts_.back().size() == widest(); }
  Tensor block(size_t rank) const;  // of blocks_
  Tensor flat(const Tensor& tensor, int64_t columns) const { return tensor.reshaped({rows_, columns}); }

  std::vector<Slice> parts_;
  Slice mine_;
  int64_t rows_;  // or pixels
  Communicator& comm_;
  Tensor whole_, mine_columns_;
  Tensor blocks_;  // ranks x rows x widest: what travels
  Tensor padded_;  // rows x widest: my block where parts are uneven
  Event arrived_;
};

}  // namespace owt

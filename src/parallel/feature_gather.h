// kFeature -> kReplicated and the two ways back, for one batch size.
//
//   forward:  every rank holds columns parts[rank] of a rows x columns batch; afterwards all hold all of it (all_gather).
//   backward: of a kPartial gradient (a column-split layer follows) the sum over ranks of my columns (reduce_scatter);
//             of a kReplicated one (the loss follows) my columns as they are, nothing travels.
// Taking the wrong one of the two gives a gradient that is K times too large and still trains.
// Uneven parts are padded to the widest for the way.
#pragma once

#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/parallel/plan.h"

namespace owt {

class FeatureGather {
 public:
  // `name` is the transfer's in reports. comm and profiler must outlive this.
  FeatureGather(std::string name, std::vector<Slice> parts, int64_t rows, const Compute& on, Communicator& comm,
                Profiler* profiler);

  // rows x parts[rank] -> rows x all, valid until the next forward.
  const Tensor& forward(const Tensor& mine, const Stream& stream);
  // rows x all -> rows x parts[rank], valid until the next backward. from: kPartial or kReplicated. In two halves, so
  // that the transfer can go on while something else is computed: `gradient` must not change between them.
  void start_backward(const Tensor& gradient, Layout from, const Stream& stream);
  const Tensor& finish_backward(const Stream& stream);
  const Tensor& backward(const Tensor& gradient, Layout from, const Stream& stream) {
    start_backward(gradient, from, stream);
    return finish_backward(stream);
  }

 private:
  int64_t columns() const { return parts_.back().end; }
  int64_t widest() const { return parts_.front().size(); }
  bool even() const { return parts_.back().size() == widest(); }
  Tensor block(size_t rank) const;  // of blocks_

  std::string name_, gradient_name_;
  std::vector<Slice> parts_;
  Slice mine_;
  int64_t rows_;
  Communicator& comm_;
  Profiler* profiler_;
  Tensor whole_, my_gradient_;
  Tensor blocks_;  // ranks x rows x widest: what travels
  Tensor padded_;  // rows x widest: my block where parts are uneven
  Event summed_;   // of a backward under way
  bool unpack_ = false;
};

}  // namespace owt

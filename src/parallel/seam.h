// The seam between the data-parallel front and the dense layers, for one number of rows per step, or of a slice of one:
// how the dense batch of a round comes together from the rows of the ranks, and how its gradient goes home.
//
//   owt-a, owt-c: kBatch -> kReplicated by all_gather of a round's rows; back by reduce_scatter
//   owt-b:        one rank's rows by broadcast; back by reduce
//   owt-a, owt-d: kBatch -> kFeature by all_to_all where the first dense layer is split by inputs (column_exchange.h);
//                 back by the same
//   mp, mp-dense: every rank has all rows already, and nothing travels there; back by all_reduce where anything before
//                 the boundary learns, or where the first dense layer is split by inputs, kFeature -> kReplicated, by
//                 all_gather (feature_gather.h)
// Work is queued on the stream given; transfers start after what is on it, and it waits for them in wait() and
// wait_back(). There is room for kRoundsAtOnce rounds: before start(r + 2) the gradient of round r must be home. Uneven
// parts are padded to the longest for the way.
#pragma once

#include <memory>

#include "src/comm/communicator.h"
#include "src/parallel/plan.h"

namespace owt {

class Seam {
 public:
  virtual ~Seam() = default;
  // Starts to bring the rows of the round together. mine: the front's output for all of this rank's rows.
  virtual void start(int round, const Tensor& mine, const Stream& stream) = 0;
  // The dense batch, once it is there; valid until start(round + 2).
  virtual Tensor wait(int round, const Stream& stream) = 0;
  // Where the gradient of that batch goes.
  virtual Tensor gradient(int round) = 0;
  // Starts to send it home.
  virtual void start_back(int round, const Stream& stream) = 0;
  virtual void wait_back(int round, const Stream& stream) = 0;
  // The gradient of `mine`, complete when that of every round has come home.
  const Tensor& home() const { return home_; }

 protected:
  explicit Seam(Tensor home) : home_(std::move(home)) {}
  Tensor home_;
};

// This rank's (of all), for the only slice of these rows or others alike; null where nothing is split, and in a
// pipeline. comm: that of the model group, which must outlive it.
std::shared_ptr<Seam> make_seam(const Plan& plan, const StepRows& rows, int rank, Communicator& comm);

}  // namespace owt

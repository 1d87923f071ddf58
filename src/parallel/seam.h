// The seam between the data-parallel front part and the dense layers, for one number of rows per step or micro-batch.
// It collects the dense batch of a round from the rows of the ranks, and returns its gradient to the owners of the
// rows.
//
//   owt-a, owt-c: kBatch -> kReplicated by all_gather of a round's rows; back by reduce_scatter
//   owt-b:        one rank's rows by broadcast; back by reduce
//   owt-a, owt-d: kBatch -> kFeature by all_to_all if the first dense layer is split by inputs (column_exchange.h);
//                 back by all_to_all
//   one rank, dp: nothing is split; the batch is the rank's own rows
//   mp, mp-dense: every rank has all rows, and nothing travels forward. If anything in the front part learns, the
//                 gradient returns by all_reduce, or, if the first dense layer is split by inputs, kFeature ->
//                 kReplicated by all_gather (feature_gather.h)
//   pipeline:     messages between neighbouring stages (stage_links.h)
// Work is queued on the given stream. Transfers start after the work already on it; wait() and wait_back() make the
// stream wait for them. There is memory for kRoundsAtOnce rounds: before start(r + 2) the gradient of round r must have
// been returned. Uneven parts are padded to the longest for transport.
#pragma once

#include <memory>

#include "src/comm/communicator.h"
#include "src/plan/plan.h"
#include "src/plan/rounds.h"
#include "src/system/check.h"

namespace owt {

class Seam {
 public:
  virtual ~Seam() = default;
  // Starts to collect the rows of the round. mine: the front part's output for all of this rank's rows.
  virtual void start(int round, const Tensor& mine, const Stream& stream) = 0;
  // Waits for the dense batch and returns it; valid until start(round + 2).
  virtual Tensor wait(int round, const Stream& stream) = 0;
  // The tensor into which the gradient of that batch must be written.
  virtual Tensor gradient(int round) = 0;
  // Starts to return it to the owners of the rows.
  virtual void start_back(int round, const Stream& stream) = 0;
  virtual void wait_back(int round, const Stream& stream) = 0;
  // The labels of that batch. labels: what the rank has for it, or for all of its own rows.
  virtual Tensor labels(int, const Tensor& labels) const { return labels; }
  // The gradient of `mine`, complete after wait_back() of every round.
  const Tensor& home() const { return home_; }

  // Whether other rounds may run between the loss of a round and its backward pass, which then begins at the last
  // layer.
  virtual bool backward_is_apart() const { return false; }
  // If another rank has the layers after the back part of this rank: sends it the output of a round, and receives the
  // gradient of this output. The gradient's memory is valid for two rounds.
  virtual void send_output(int, const Tensor&, const Stream&) { fail("no layers follow"); }
  virtual void wait_for_sent_output(int, const Stream&) const { fail("no layers follow"); }
  virtual void start_output_gradient(int, const Stream&) { fail("no layers follow"); }
  virtual void wait_for_output_gradient(int, const Stream&) const { fail("no layers follow"); }
  virtual Tensor output_gradient(int) const { fail("no layers follow"); }

 protected:
  explicit Seam(Tensor home) : home_(std::move(home)) {}
  Tensor home_;
};

// The seam of rank `rank` of all ranks, for one micro-batch of these rows or of others like it. comm: of the model
// group; it must outlive the seam.
std::shared_ptr<Seam> make_seam(const Plan& plan, const StepRows& rows, int rank, Communicator& comm);

}  // namespace owt

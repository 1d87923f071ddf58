// Runs the actions of a step (src/plan/order.h) one after the other: on a GPU it queues them.
#pragma once

#include <optional>

#include "layers/loss/class_sample.h"
#include "src/parallel/rank_sums.h"
#include "src/parallel/step_program.h"
#include "src/parallel/step_weights.h"

namespace owt {

// Carries out the transfers of the plan: start() and wait() name the object that moves the bytes of each one. Transfers
// of weights and their gradients are in StepWeights; those between the layers of the back part in DenseTape.
class StepMoves {
 public:
  // The moves of the rank at this place of its model group. block: the values of the step on the device. All arguments
  // must outlive this.
  StepMoves(const Plan& plan, int place, Communicator& world, StepWeights& weights, const StepBlock& block);

  void start(const Action& action, StepState& now, const Stream& stream);
  void wait(const Action& action, StepState& now, const Stream& stream);
  // Whether a transfer brings the input of the back part. If not, it is made here.
  bool brings_input() const { return input_.input != kNoTransfer; }

 private:
  void start_result(const StepState& now, const Stream& stream);

  const StepTransfers& of_step_;
  // The transfers before the rank's back part, and after a pipeline stage. A message from one neighbour and a message
  // to the other are the same transfer of the plan, seen from its two ends.
  LayerTransfers input_, output_;
  Communicator& world_;
  StepWeights& weights_;
  const StepBlock& block_;
  Event result_shared_;
};

class StepRunner {
 public:
  // profiler may be null. All other arguments must outlive this.
  StepRunner(const Plan& plan, const Groups& groups, StepWeights& weights, Profiler* profiler,
             const LogitsReceiver& logits, const Stream& stream);

  // The values of the step on the device, which the caller must set before run().
  StepBlock& block() { return block_; }
  bool alone() const { return groups_.world().ranks() == 1; }  // results go to the host from here, not from block()
  bool profiles() const { return profiler_ && profiler_->in_step(); }
  void run(StepState& now);

 private:
  int place() const { return groups_.model().rank(); }  // the rank's place in its model group
  void begin(MicroBatch& micro, StepState& now);
  void run(const Action& action, StepState& now);
  void forward(int64_t layer, int round, StepState& now);
  void draw_sample(StepState& now);
  void begin_round(int round, StepState& now);
  void begin_sums(int64_t layer, Phase phase, const StepState& now);
  void loss(const Action& action, StepState& now);
  Tensor my_sums();
  LossFollowUp after_loss(const StepState& now, const BackPart& back) const;
  void begin_backward(int round, StepState& now);
  void backward_data(int64_t layer, int round, StepState& now);
  void backward_weights(const Action& action, StepState& now);
  void update(const Action& action, StepState& now);
  void average(const StepState& now);
  void find_norms(const Action& action, const StepState& now);
  void transfer(const Action& action, StepState& now);
  int64_t rows_of_update(const Action& action, const StepState& now) const;
  double gradient_scale(const Action& action, const StepState& now) const;
  Optimizer::Rates rates_of(const Action& action, const StepState& now) const;
  const Stream& stream_of(const Action& action) const;

  const Plan& plan_;
  const Groups& groups_;
  StepWeights& weights_;
  Profiler* profiler_;
  const LogitsReceiver& logits_;
  const Stream& stream_;
  Stream beside_;  // for actions that others need not wait for
  StepBlock block_;
  Tensor others_sums_;  // receives sums of rows that another rank counts
  StepMoves moves_;
  std::optional<ClassSample> sample_;
  std::optional<RankSums> front_sums_, back_sums_;  // sums over all rows of a step, in the front part and the back part
};

}  // namespace owt

// The functions in which strategies are written (src/plan/strategies): each appends actions to the list of a step.
//
// A transfer is left out if the plan does not have it, if this kind of step does not have it, or if its group is a
// single rank. Evaluation leaves out everything that belongs to learning. The backward pass ends at the first layer
// that learns.
//
// With gradient accumulation the order runs once per micro-batch (slice, StepRows), and gradients add up. Gradients of
// the front, and dense gradients that are not updated every round, are sent in the last micro-batch only; updates are
// there too.
#pragma once

#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "src/plan/action.h"
#include "src/plan/rounds.h"

namespace owt {

class StepOrder {
 public:
  StepOrder(const Plan& plan, int64_t step_rows, int place, bool learns, StepKind kind);

  // Switches to the next micro-batch. Returns false if the current one is the last.
  bool next_slice();

  // The layers of the front part, on the rank's own rows. A bucket of gradients is sent as soon as the gradient of its
  // last layer is complete; `left` is called with its index.
  void forward_front();
  void backward_front(const std::function<void(int bucket)>& left = {});
  // Waits for the sums of all buckets, then updates.
  void update_front();
  void average_front();  // averages the weights that each rank has updated on its own, and the optimizer state
  // Updates the averages over time with all weights, which are again equal on all ranks that hold them.
  void average_weights();
  int buckets() const { return static_cast<int>(plan_.buckets.size()); }
  // For all buckets with an index below `below` whose shards have not been updated: waits for the sum, updates this
  // rank's shard, and sends the new weights. If norms are still missing, it only waits.
  void update_shares(int below);
  void wait_for_weights();

  // The number of rounds (dense batches) of the micro-batch, and the transfer of their rows.
  int rounds() const { return static_cast<int>(round_rows_.size()); }
  void start_labels() {  // without a back part they are needed in training only
    if (learns_ || plan_.split()) start(plan_.of_step.labels);
  }
  // Starts the transfer of a round's rows, if there is such a round. It first waits for room: kRoundsAtOnce rounds are
  // in memory until their gradients have been returned.
  void bring_rows(int round);
  void wait_for_rows(int round) { wait(seam().input, round); }
  void wait_for_home();  // waits for the input gradients of all rounds

  // The layers of the back part, with the transfers of features between them. The gradient of a layer's input is sent
  // before the gradients of its weights are computed. After the last round the gradients of the weights are complete
  // and are sent.
  void forward_dense(int round);
  void backward_dense(int round);
  void update_after(int round);  // under DenseUpdate::kRound only
  void update_dense();           // under DenseUpdate::kStep only, unless done beside the backward pass

  // If updates depend on norms: waits for all gradients, and computes the norms.
  void gradient_norms();

  // The loss of the round's logits. Under Plan::loss_follows(), backward_dense() ends with the rest of the loss.
  void loss(int round);
  // Starts to send the result of the step, in training. If it is not called, share_result() sends it.
  void start_result();
  void share_result();

  std::vector<Action> take() { return std::move(actions_); }

 private:
  friend class StageOrder;  // strategies/pipeline.cpp

  const LayerPlan& layer(int64_t i) const { return plan_.layer(i); }
  const LayerTransfers& seam() const { return layer(plan_.boundary).transfers; }
  bool every_round() const { return plan_.split() && plan_.request.dense_update == DenseUpdate::kRound; }
  bool is_last_slice() const { return slice_ + 1 == rows_.slices(); }
  bool updates() const { return learns_ && is_last_slice(); }
  void begin_slice(int slice);
  bool completes(int round) const;
  bool learns(const Slice& layers) const;  // at least one of them learns
  bool travels(TransferId id) const;
  TransferId summed() const;

  // Whether the classes of a step are drawn, from its labels, before this layer's forward.
  bool samples_before(int64_t i) const { return learns_ && !layer(i).sampled.empty(); }
  void end_loss(int round);
  void backward_weights(int64_t i, int round);
  void gradients_done(int64_t i, const std::function<void(int bucket)>& left = {});
  void wait_for_home_until(int round);
  void update_dense_after(int round);
  void update_share(int bucket);
  void wait_for_dense_gradients();

  void start(TransferId transfer, int round = kOwnRows, int bucket = 0, bool beside = false);
  void wait(TransferId transfer, int round = kOwnRows, int bucket = 0, bool beside = false);
  void wait_for_buckets(TransferId transfer, const std::vector<Bucket>& buckets, bool beside = false);
  void exchange(TransferId transfer, int round = kOwnRows);
  void add(Action action);
  void add(Action::Kind kind, const Slice& layers, int round);
  void update(const Slice& layers, int round, TransferId summed, int bucket, bool beside);

  const Plan& plan_;
  int place_;            // place in the model group
  int64_t begin_, end_;  // the layers of the back part at this place
  bool learns_;
  StepKind kind_;
  bool beside_;    // the dense layers are updated as soon as their gradients are complete, beside later actions
  int64_t dense_;  // the first of the layers that are updated together, after the others
  int home_ = 0;   // the first round whose input gradient has not been waited for
  StepRows rows_;
  int slice_ = 0;
  std::vector<int64_t> round_rows_;  // rows of each round of the micro-batch, over all replicas
  int shares_ = 0;                   // number of buckets whose shards are updated
  bool norms_found_ = false, result_started_ = false;
  std::set<std::tuple<TransferId, int, int>> waited_;  // transfer, round and bucket
  std::vector<Action> actions_;
};

}  // namespace owt

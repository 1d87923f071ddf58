// The words in which strategies are written (order.cpp): each appends actions to the list of a step.
//
// A transfer that the plan has not got, that steps of this kind have not, or among one rank, is neither started nor
// waited for. What belongs to learning is left out in evaluation, and backward ends at the first layer that learns.
//
// A step of several slices (StepRows) is the order once for each, and gradients add up: those of the front, and dense
// ones that are not updated every round, leave in the last slice alone, where the updates are too.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "src/parallel/action.h"

namespace owt {

class StepOrder {
 public:
  StepOrder(const Plan& plan, int64_t step_rows, int place, bool learns, StepKind kind);

  // From now on the words are about the next slice; false: this is the last one.
  bool next_slice();

  // Layers before the boundary, on the rank's own rows. A bucket of gradients leaves as soon as that of its last layer
  // is there; `left` is told which.
  void forward_front();
  void backward_front(const std::function<void(int bucket)>& left = {});
  // Waits for the sums of all buckets, and updates.
  void update_front();
  void average_front();    // the weights that each rank has updated by itself, and the optimizer's states
  void average_weights();  // the averages over time take in all weights, which are alike again wherever they are held
  int buckets() const { return static_cast<int>(plan_.buckets.size()); }
  // Of the buckets with a smaller number that each rank updates a share of, waits for the sums, updates its own, and
  // sends the new weights; where norms are still to come, waits alone.
  void update_shares(int below);
  void wait_for_weights();

  // Rounds of dense batches of the slice, and the rows that make them up.
  int rounds() const { return static_cast<int>(round_rows_.size()); }
  void start_labels() { start(plan_.of_step.labels); }
  // Starts to bring the rows of a round together, if there is such a round, as soon as there is room: kRoundsAtOnce
  // have a place, until their gradients are home.
  void bring_rows(int round);
  void wait_for_rows(int round) { wait(seam().input, round); }
  void wait_for_home();  // the gradients of all rounds

  // Layers behind the boundary, with the moves of features between them. The gradient of a layer's input leaves before
  // those of its weights are computed; with the last round's the gradients of the weights are complete, and leave.
  void forward_dense(int round);
  void backward_dense(int round);
  void update_after(int round);  // under DenseUpdate::kRound
  void update_dense();           // under DenseUpdate::kStep, if it has not been done beside the backward pass

  // A stage of a pipeline and its micro-batches; forward alone in evaluation. What a task takes from the stage before,
  // or behind, is brought for it. `last`: with this one the gradients of the weights are complete; without a flush they
  // are with each.
  std::vector<StageTask> stage_tasks() const;
  void bring_for(const StageTask& task) { start(brought_for(task), task.batch); }
  void wait_for(const StageTask& task);
  void forward_stage(int batch);
  void backward_stage(int batch, bool last);
  void wait_for_sent();
  // Under schedules without a flush: which weights a task runs with, where they are not the newest, and those again
  // behind it; and the update by a micro-batch, before which a version of the weights may have to be kept.
  void take_weights(const StageTask& task);
  void take_newest_weights();
  void update_stage(int batch);

  // Where updates depend on norms: waits for all gradients, and finds them.
  void gradient_norms();

  // Of the round's logits. Under Plan::loss_follows() backward_dense() ends with what is left of it.
  void loss(int round);
  // Tells the others the result of the step, in training; without it share_result() does.
  void tell_result();
  void share_result();

  std::vector<Action> take() { return std::move(actions_); }

 private:
  const LayerPlan& layer(int64_t i) const { return plan_.layer(i); }
  const LayerTransfers& seam() const { return layer(plan_.boundary).transfers; }
  bool every_round() const { return plan_.split() && plan_.request.dense_update == DenseUpdate::kRound; }
  bool is_last_slice() const { return slice_ + 1 == rows_.slices(); }
  bool updates() const { return learns_ && is_last_slice(); }
  void begin_slice(int slice);
  bool completes(int round) const;
  bool learns(const Slice& layers) const;  // one of them does
  bool travels(TransferId id) const;
  TransferId summed() const;

  TransferId brought_for(const StageTask& task) const;
  TransferId stage_output() const { return plan_.has_loss(place_) ? kNoTransfer : layer(end_).transfers.input; }
  TransferId stage_gradient() const { return layer(begin_).transfers.input_gradient; }
  void wait_for_output(int batch);
  void wait_for_oldest_gradient();
  void copy_weights(int batch, int copy, int ahead);

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
  int place_;            // in its model group
  int64_t begin_, end_;  // the layers behind the boundary that are here
  bool learns_;
  StepKind kind_;
  bool beside_;    // the dense layers are updated as soon as their gradients are complete, and beside what follows
  int64_t dense_;  // the first of the layers that are updated together behind the others
  int home_ = 0;   // the first round whose gradient was not waited for
  StepRows rows_;
  int slice_ = 0;
  std::vector<int64_t> round_rows_;  // of the slice, over all replicas
  // Micro-batches whose activations, and whose input's gradients, have left and were not waited for.
  std::set<int> outputs_sent_;
  std::deque<int> gradients_sent_;
  int shares_ = 0;  // buckets whose shares are updated
  bool norms_found_ = false, told_ = false;
  std::set<std::tuple<TransferId, int, int>> waited_;  // with round and bucket
  int taken_for_ = kOwnRows;                           // the micro-batch for which a copy has taken the weights' place
  std::vector<Action> actions_;
};

}  // namespace owt

#include "src/parallel/order.h"

#include <algorithm>

#include "src/core/log.h"

namespace owt {
namespace {

int64_t first_dense(const Plan& plan) {
  int64_t i = 0;
  while (i < plan.boundary && plan.layers[static_cast<size_t>(i)].columns != Columns::kSplits) ++i;
  return i;
}

// On a GPU large dense layers are updated while those before them run backward, where their gradients are complete, or
// on their way, by then.
bool updates_beside(const Plan& plan) {
  if (plan.request.on.device != Device::kCuda || plan.request.dense_update != DenseUpdate::kStep) return false;
  if (!plan.split() && plan.sums_gradients(0)) return false;
  int64_t elements = 0;
  for (size_t i = static_cast<size_t>(first_dense(plan)); i < plan.layers.size(); ++i)
    for (const Shape& param : plan.layers[i].params) elements += plan.layers[i].most_elements(param);
  return elements >= plan.request.beside_from;
}

// What strategies are written in. A transfer that the plan has not got, or among one rank, is neither started nor
// waited for.
class Order {
 public:
  Order(const Plan& plan, int64_t step_rows, bool learns)
      : plan_(plan),
        end_(static_cast<int64_t>(plan.layers.size())),
        learns_(learns),
        beside_(updates_beside(plan)),
        dense_(beside_ ? first_dense(plan) : plan.boundary) {
    for (int replica = 0; replica < (plan.split() ? plan.replicas() : 1); ++replica) {
      const auto sizes = plan.rows(step_rows).round_sizes(replica * plan.model_ranks);
      round_rows_.resize(sizes.size());
      for (size_t r = 0; r < sizes.size(); ++r) round_rows_[r] += sizes[r].rows;
    }
  }

  int rounds() const { return static_cast<int>(round_rows_.size()); }
  const LayerTransfers& seam() const { return layer(plan_.boundary).transfers; }
  const StepTransfers& of_step() const { return plan_.of_step; }

  void start(TransferId transfer, int round = kOwnRows, int bucket = 0, bool beside = false) {
    note(Action::Kind::kStart, transfer, round, bucket, beside);
  }
  void wait(TransferId transfer, int round = kOwnRows, int bucket = 0, bool beside = false) {
    note(Action::Kind::kWait, transfer, round, bucket, beside);
  }
  void exchange(TransferId transfer, int round = kOwnRows) {
    start(transfer, round);
    wait(transfer, round);
  }

  void home(int round) {
    if (learns_) wait(seam().input_gradient, round);
  }

  void forward(int64_t i, int round) { add(Action::Kind::kForward, {i, i + 1}, round); }
  // Of logits that lie on several ranks, each first sums up what the others must know of its own.
  void loss(int round) {
    wait(of_step().labels, round);
    if (travels(of_step().loss_statistics)) {
      actions_.push_back({.kind = Action::Kind::kLoss, .round = round, .transfer = of_step().loss_statistics});
      exchange(of_step().loss_statistics, round);
    }
    add(Action::Kind::kLoss, {}, round);
  }

  void forward_front() {
    for (int64_t i = 0; i < plan_.boundary; ++i) forward(i, kOwnRows);
  }

  void forward_dense(int round) {
    for (int64_t i = plan_.boundary; i < end_; ++i) {
      if (i > plan_.boundary) exchange(layer(i).transfers.input, round);
      forward(i, round);
      exchange(layer(i).transfers.output, round);
    }
    exchange(of_step().logits, round);
  }

  // The gradient of a layer's input leaves before those of its weights are computed.
  void backward_dense(int round) {
    if (!learns_) return;
    for (int64_t i = end_; i-- > plan_.boundary;) {
      exchange(layer(i).transfers.output_gradient, round);
      add(Action::Kind::kBackwardData, {i, i + 1}, round);
      start(layer(i).transfers.input_gradient, round);
      backward_weights(i, round);
      if (completes(round)) gradients_done(i);
      if (i > plan_.boundary) wait(layer(i).transfers.input_gradient, round);
    }
  }

  void backward_front() {
    if (!learns_ || !plan_.front_learns) return;
    for (int64_t i = plan_.boundary; i-- > 0;) {
      add(Action::Kind::kBackwardData, {i, i + 1}, kOwnRows);
      backward_weights(i, kOwnRows);
      gradients_done(i);
    }
  }

  // Under several rounds with DenseUpdate::kRound, of every one; else of the last, and after the front's backward pass.
  void update_after(int round) {
    if (learns_ && every_round() && completes(round)) update_dense(round);
  }
  void update_all() {
    if (!learns_) return;
    if (!beside_ && !every_round()) update_dense(kOwnRows);
    if (plan_.shares_update()) {
      update_shares_before(static_cast<int>(plan_.buckets.size()));
      for (int b = 0; b < static_cast<int>(plan_.buckets.size()); ++b) wait(of_step().weights, kOwnRows, b);
    } else {
      wait_for(summed(), static_cast<int>(plan_.buckets.size()), false);
      update({0, dense_}, kOwnRows, summed(), 0, false);
    }
  }

  void share_result() { exchange(of_step().result); }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  const LayerPlan& layer(int64_t i) const { return plan_.layers[static_cast<size_t>(i)]; }
  bool every_round() const { return plan_.split() && plan_.request.dense_update == DenseUpdate::kRound; }
  // The dense weights' gradients are complete with this round, which has rows on some rank.
  bool completes(int round) const {
    return every_round() ? round_rows_[static_cast<size_t>(round)] > 0 : round + 1 == rounds();
  }
  bool travels(TransferId id) const {
    return id != kNoTransfer && plan_.ranks_of(plan_.transfers[static_cast<size_t>(id)].group) > 1;
  }
  // What ends with the sums of the front's gradients on every rank.
  TransferId summed() const {
    return of_step().gradient_copies == kNoTransfer ? of_step().gradients : of_step().gradient_copies;
  }

  void backward_weights(int64_t i, int round) {
    if (!layer(i).params.empty()) add(Action::Kind::kBackwardWeights, {i, i + 1}, round);
  }

  // A bucket leaves when the gradients of its last layer are complete.
  void gradients_done(int64_t i) {
    const bool front = i < plan_.boundary;
    const std::vector<Bucket>& buckets = front ? plan_.buckets : plan_.back_buckets;
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b].layers.back() != i) continue;
      start(front ? of_step().gradients : of_step().dense_gradients, kOwnRows, static_cast<int>(b));
      if (front) start(of_step().gradient_copies, kOwnRows, static_cast<int>(b));
      if (front && plan_.shares_update()) update_shares_before(static_cast<int>(b));
    }
    if (beside_ && i == dense_) update_dense(kOwnRows);
  }

  // ZeRO: the bucket before this one has had the time of this one's layers to be summed. Which one is updated now must
  // not depend on what has arrived: all ranks call the collectives in the same order.
  void update_shares_before(int bucket) {
    const int b = bucket - 1;
    if (b < 0) return;
    const std::vector<int64_t>& layers = plan_.buckets[static_cast<size_t>(b)].layers;
    wait(of_step().gradients, kOwnRows, b, true);
    update({layers.back(), layers.front() + 1}, kOwnRows, of_step().gradients, b, true);
    start(of_step().weights, kOwnRows, b, true);
  }

  void update_dense(int round) {
    const bool beside = beside_;
    wait_for(of_step().dense_gradients, static_cast<int>(plan_.back_buckets.size()), beside);
    update({dense_, end_}, round, of_step().dense_gradients, 0, beside);
  }

  void wait_for(TransferId transfer, int buckets, bool beside) {
    for (int b = 0; b < buckets; ++b) wait(transfer, kOwnRows, b, beside);
  }

  void add(Action::Kind kind, const Slice& layers, int round) {
    actions_.push_back({.kind = kind, .layers = layers, .round = round});
  }
  void update(const Slice& layers, int round, TransferId summed, int bucket, bool beside) {
    if (layers.size() == 0) return;
    actions_.push_back({.kind = Action::Kind::kUpdate,
                        .layers = layers,
                        .round = round,
                        .transfer = travels(summed) ? summed : kNoTransfer,
                        .bucket = bucket,
                        .beside = beside});
  }
  void note(Action::Kind kind, TransferId transfer, int round, int bucket, bool beside) {
    if (!travels(transfer)) return;
    actions_.push_back({.kind = kind, .round = round, .transfer = transfer, .bucket = bucket, .beside = beside});
  }

  const Plan& plan_;
  int64_t end_;
  bool learns_;
  bool beside_;    // the dense layers are updated as soon as their gradients are complete, and beside what follows
  int64_t dense_;  // the first of the layers that are updated together behind the others
  std::vector<int64_t> round_rows_;  // over all replicas
  std::vector<Action> actions_;
};

// dp, and every strategy on one rank or for a network with nothing to split: each rank runs the whole network on its
// own rows. Gradients leave in buckets while backward goes on; the weights, the same on all ranks, are updated by all.
// dp-zero: the same, but each rank updates its share of a bucket and sends the others the new weights.
// Sources: Li et al. 2020, "PyTorch Distributed", section 3.2 (buckets); Rajbhandari et al. 2020, "ZeRO", P_os.
void data_parallel(Order& step) {
  step.forward_front();
  step.loss(0);
  step.backward_front();
  step.update_all();
}

// owt-a to owt-d: convolutions run on each rank's own rows, dense layers on dense batches of everybody's, one a round;
// every rank has columns of their weights. What makes up a round is in rounds.h: owt-a and owt-d have one of all rows,
// owt-b one for each rank's, owt-c one for a part of every rank's. The next round's rows travel while this one is
// computed, and gradients go home meanwhile; there is room for two rounds.
// mp: the same, where all ranks have all rows already and only the gradients are summed on their way back.
// Source: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", section 3.
void one_weird_trick(Order& step) {
  step.start(step.of_step().labels);
  step.forward_front();
  step.start(step.seam().input, 0);
  for (int r = 0; r < step.rounds(); ++r) {
    if (r + 1 < step.rounds()) {
      if (r >= 1) step.home(r - 1);
      step.start(step.seam().input, r + 1);
    }
    step.wait(step.seam().input, r);
    step.forward_dense(r);
    step.loss(r);
    step.backward_dense(r);
    step.update_after(r);
  }
  for (int r = std::max(0, step.rounds() - 2); r < step.rounds(); ++r) step.home(r);
  step.backward_front();
  step.update_all();
}

std::vector<Action> order_of(const Plan& plan, int64_t step_rows, bool learns) {
  Order step(plan, step_rows, learns);
  if (plan.split())
    one_weird_trick(step);
  else
    data_parallel(step);
  step.share_result();
  return step.take();
}

std::string bucket_of(const Plan& plan, const Action& action) {
  const StepTransfers& at = plan.of_step;
  for (const TransferId id : {at.gradients, at.gradient_copies, at.weights, at.dense_gradients})
    if (action.transfer == id) return concat(", bucket ", action.bucket);
  return "";
}

}  // namespace

const char* name_of(Action::Kind kind) {
  const char* const names[] = {"forward", "loss", "backward data", "backward weights", "update", "start", "wait"};
  return names[static_cast<size_t>(kind)];
}

std::vector<Action> training(const Plan& plan, int64_t step_rows) { return order_of(plan, step_rows, true); }
std::vector<Action> evaluation(const Plan& plan, int64_t step_rows) { return order_of(plan, step_rows, false); }

std::string subject(const Plan& plan, const Action& action) {
  if (action.kind == Action::Kind::kStart || action.kind == Action::Kind::kWait)
    return concat(plan.transfers[static_cast<size_t>(action.transfer)].name, bucket_of(plan, action));
  if (action.layers.size() == 0) return "";
  const auto name = [&](int64_t i) { return plan.layers[static_cast<size_t>(i)].name; };
  const std::string first = name(action.layers.begin), last = name(action.layers.end - 1);
  return first == last ? first : concat(first, " to ", last);
}

std::string order_text(const Plan& plan, const std::vector<Action>& actions) {
  std::string text = format("{:>4}  {:<17} {:>5}  {}\n", "nr", "action", "round", "of");
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& at = actions[i];
    text +=
        format("{:>4}  {:<17} {:>5}  {}{}\n", i + 1, name_of(at.kind), at.round == kOwnRows ? "" : concat(at.round + 1),
               subject(plan, at), at.beside ? " (beside what follows)" : "");
  }
  return text;
}

}  // namespace owt

#include "src/parallel/step_order.h"

#include <algorithm>

namespace owt {
namespace {

int64_t first_dense(const Plan& plan) {
  int64_t i = 0;
  while (i < plan.boundary && plan.layer(i).columns != Columns::kSplits) ++i;
  return i;
}

// On a GPU large dense layers are updated while those before them run backward, where their gradients are complete, or
// on their way, by then.
bool updates_beside(const Plan& plan) {
  if (plan.request.on.device != Device::kCuda || plan.request.dense_update != DenseUpdate::kStep) return false;
  if (!plan.split() && (plan.sums_gradients(0) || plan.averages())) return false;
  int64_t elements = 0;
  for (size_t i = static_cast<size_t>(first_dense(plan)); i < plan.layers.size(); ++i)
    for (const Shape& param : plan.layers[i].params) elements += plan.layers[i].most_elements(param);
  return elements >= plan.request.beside_from;
}

}  // namespace

StepOrder::StepOrder(const Plan& plan, int64_t step_rows, bool learns, StepKind kind)
    : plan_(plan),
      end_(static_cast<int64_t>(plan.layers.size())),
      learns_(learns),
      kind_(kind),
      beside_(updates_beside(plan)),
      dense_(beside_ ? first_dense(plan) : plan.boundary),
      round_rows_(plan.round_rows(step_rows)) {}

void StepOrder::forward_front() {
  for (int64_t i = 0; i < plan_.boundary; ++i) add(Action::Kind::kForward, {i, i + 1}, kOwnRows);
}

void StepOrder::backward_front(const std::function<void(int bucket)>& left) {
  if (!learns_ || !plan_.front_learns) return;
  for (int64_t i = plan_.boundary; i-- > 0;) {
    add(Action::Kind::kBackwardData, {i, i + 1}, kOwnRows);
    backward_weights(i, kOwnRows);
    gradients_done(i, left);
  }
}

void StepOrder::update_front() {
  if (!learns_) return;
  wait_for_buckets(summed(), plan_.buckets);
  update({0, dense_}, kOwnRows, summed(), 0, false);
}

void StepOrder::average_front() {
  if (!learns_) return;
  for (int b = 0; b < buckets(); ++b) start(plan_.of_step.averages, kOwnRows, b);
  wait_for_buckets(plan_.of_step.averages, plan_.buckets);
}

void StepOrder::update_share(int bucket) {
  if (!learns_ || bucket < 0) return;
  const std::vector<int64_t>& layers = plan_.buckets[static_cast<size_t>(bucket)].layers;
  wait(plan_.of_step.gradients, kOwnRows, bucket, true);
  update({layers.back(), layers.front() + 1}, kOwnRows, plan_.of_step.gradients, bucket, true);
  start(plan_.of_step.weights, kOwnRows, bucket, true);
}

void StepOrder::wait_for_weights() {
  if (learns_) wait_for_buckets(plan_.of_step.weights, plan_.buckets);
}

void StepOrder::bring_rows(int round) {
  if (round >= rounds()) return;
  wait_for_home_until(round + 1 - kRoundsAtOnce);
  start(seam().input, round);
}

void StepOrder::wait_for_home() { wait_for_home_until(rounds()); }

void StepOrder::wait_for_home_until(int round) {
  for (; learns_ && home_ < round; ++home_) wait(seam().input_gradient, home_);
}

void StepOrder::forward_dense(int round) {
  for (int64_t i = plan_.boundary; i < end_; ++i) {
    if (i > plan_.boundary) exchange(layer(i).transfers.input, round);
    add(Action::Kind::kForward, {i, i + 1}, round);
    exchange(layer(i).transfers.output, round);
  }
  exchange(plan_.of_step.logits, round);
}

void StepOrder::backward_dense(int round) {
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

void StepOrder::update_after(int round) {
  if (learns_ && every_round() && completes(round)) update_dense_after(round);
}

void StepOrder::update_dense() {
  if (learns_ && !beside_ && !every_round()) update_dense_after(kOwnRows);
}

void StepOrder::update_dense_after(int round) {
  wait_for_buckets(plan_.of_step.dense_gradients, plan_.back_buckets, beside_);
  update({dense_, end_}, round, plan_.of_step.dense_gradients, 0, beside_);
}

// Where logits lie on several ranks, each first sums up what the others must know of its own.
void StepOrder::loss(int round) {
  wait(plan_.of_step.labels, round);
  if (travels(plan_.of_step.loss_statistics)) {
    actions_.push_back({.kind = Action::Kind::kLoss, .round = round, .transfer = plan_.of_step.loss_statistics});
    exchange(plan_.of_step.loss_statistics, round);
  }
  add(Action::Kind::kLoss, {}, round);
}

// The dense weights' gradients are complete with this round, which has rows on some rank.
bool StepOrder::completes(int round) const {
  return every_round() ? round_rows_[static_cast<size_t>(round)] > 0 : round + 1 == rounds();
}

bool StepOrder::travels(TransferId id) const {
  return id != kNoTransfer && plan_.ranks_of(plan_.transfer(id).group) > 1 && plan_.transfer(id).in(kind_);
}

// What ends with the sums of the front's gradients on every rank.
TransferId StepOrder::summed() const {
  return plan_.of_step.gradient_copies == kNoTransfer ? plan_.of_step.gradients : plan_.of_step.gradient_copies;
}

void StepOrder::backward_weights(int64_t i, int round) {
  if (layer(i).params.empty()) return;
  add(Action::Kind::kBackwardWeights, {i, i + 1}, round);
  actions_.back().updates = plan_.updates_at_once(i);
}

void StepOrder::gradients_done(int64_t i, const std::function<void(int bucket)>& left) {
  const bool front = i < plan_.boundary;
  const std::vector<Bucket>& buckets = front ? plan_.buckets : plan_.back_buckets;
  for (int b = 0; b < static_cast<int>(buckets.size()); ++b) {
    if (buckets[static_cast<size_t>(b)].layers.back() != i) continue;
    start(front ? plan_.of_step.gradients : plan_.of_step.dense_gradients, kOwnRows, b);
    if (front) start(plan_.of_step.gradient_copies, kOwnRows, b);
    if (left) left(b);
  }
  if (beside_ && i == dense_) update_dense_after(kOwnRows);
}

void StepOrder::start(TransferId transfer, int round, int bucket, bool beside) {
  if (!travels(transfer)) return;
  actions_.push_back(
      {.kind = Action::Kind::kStart, .round = round, .transfer = transfer, .bucket = bucket, .beside = beside});
}

void StepOrder::wait(TransferId transfer, int round, int bucket, bool beside) {
  if (!travels(transfer)) return;
  actions_.push_back(
      {.kind = Action::Kind::kWait, .round = round, .transfer = transfer, .bucket = bucket, .beside = beside});
}

void StepOrder::wait_for_buckets(TransferId transfer, const std::vector<Bucket>& buckets, bool beside) {
  for (int b = 0; b < static_cast<int>(buckets.size()); ++b) wait(transfer, kOwnRows, b, beside);
}

void StepOrder::exchange(TransferId transfer, int round) {
  start(transfer, round);
  wait(transfer, round);
}

void StepOrder::add(Action::Kind kind, const Slice& layers, int round) {
  actions_.push_back({.kind = kind, .layers = layers, .round = round});
}

void StepOrder::update(const Slice& layers, int round, TransferId summed, int bucket, bool beside) {
  if (layers.size() == 0) return;
  actions_.push_back({.kind = Action::Kind::kUpdate,
                      .layers = layers,
                      .round = round,
                      .transfer = travels(summed) ? summed : kNoTransfer,
                      .bucket = bucket,
                      .beside = beside});
}

}  // namespace owt

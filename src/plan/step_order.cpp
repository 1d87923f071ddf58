#include "src/plan/step_order.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"

#include <algorithm>

namespace owt {
namespace {

// The first learning layer, starting at the first dense layer.
int64_t first_dense(const Plan& plan) {
  int64_t i = 0;
  while (i < plan.boundary && plan.layer(i).columns != Columns::kSplits) ++i;
  while (i < std::ssize(plan.layers) && !plan.layer(i).learns()) ++i;
  return i;
}

// On a GPU large dense layers are updated while the layers before them run backward. Their gradients must be complete,
// or already on their way.
bool updates_beside(const Plan& plan) {
  if (plan.request.on.device != Device::kCuda || plan.request.dense_update != DenseUpdate::kStep) return false;
  if (plan.places() > 1 || plan.has_norms() || plan.has_matrices()) return false;
  if (!plan.split() && (sums_gradients(plan, 0) || plan.averages())) return false;
  int64_t elements = 0;
  for (int64_t i = first_dense(plan); i < std::ssize(plan.layers); ++i)
    if (const LayerPlan& at = plan.layer(i); at.learns())
      for (const Shape& param : at.params) elements += at.most_elements(param);
  return elements >= plan.request.beside_from;
}

}  // namespace

StepOrder::StepOrder(const Plan& plan, int64_t step_rows, int place, bool learns, StepKind kind)
    : plan_(plan),
      place_(place),
      begin_(plan.back_layers(place).begin),
      end_(plan.back_layers(place).end),
      learns_(learns),
      kind_(kind),
      beside_(updates_beside(plan)),
      dense_(beside_ ? first_dense(plan) : begin_),
      rows_(rows_of(plan, step_rows)) {
  begin_slice(0);
}

void StepOrder::begin_slice(int slice) {
  slice_ = slice;
  home_ = 0;
  waited_.clear();
  round_rows_ = round_rows(plan_, rows_.slice(slice));
}

bool StepOrder::next_slice() {
  if (is_last_slice()) return false;
  begin_slice(slice_ + 1);
  return true;
}

void StepOrder::forward_front() {
  for (int64_t i = 0; i < plan_.boundary; ++i) {
    if (samples_before(i)) wait(plan_.of_step.labels, 0);
    add(Action::Kind::kForward, {i, i + 1}, kOwnRows);
  }
}

void StepOrder::backward_front(const std::function<void(int bucket)>& left) {
  if (!learns_) return;
  for (int64_t i = plan_.boundary; i-- > 0 && layer(i).runs_backward();) {
    add(Action::Kind::kBackwardData, {i, i + 1}, kOwnRows);
    backward_weights(i, kOwnRows);
    if (is_last_slice()) gradients_done(i, left);
  }
}

void StepOrder::update_front() {
  if (!updates()) return;
  wait_for_buckets(summed(), plan_.buckets);
  update({0, dense_}, kOwnRows, summed(), 0, false);
}

void StepOrder::average_front() {
  if (!updates()) return;
  for (int b = 0; b < buckets(); ++b) start(plan_.of_step.averages, kOwnRows, b);
  wait_for_buckets(plan_.of_step.averages, plan_.buckets);
}

void StepOrder::average_weights() {
  if (!learns_ || plan_.request.ema_every == 0 || kind_ == StepKind::kLocal) return;
  add(Action::Kind::kAverageWeights, plan_.layers_at(place_), kOwnRows);
}

void StepOrder::update_shares(int below) {
  if (!updates()) return;
  if (plan_.has_norms() && !norms_found_) {
    for (int b = 0; b < below; ++b) wait(plan_.of_step.gradients, kOwnRows, b);
    return;
  }
  for (; shares_ < below; ++shares_) update_share(shares_);
}

void StepOrder::update_share(int bucket) {
  const bool beside = !plan_.has_norms() && !plan_.has_matrices();  // products on one stream share a workspace
  const std::vector<int64_t>& layers = plan_.buckets[static_cast<size_t>(bucket)].layers;
  wait(plan_.of_step.gradients, kOwnRows, bucket, beside);
  update({layers.back(), layers.front() + 1}, kOwnRows, plan_.of_step.gradients, bucket, beside);
  start(plan_.of_step.weights, kOwnRows, bucket, beside);
}

void StepOrder::gradient_norms() {
  if (!updates() || !plan_.has_norms()) return;
  wait_for_buckets(summed(), plan_.buckets);
  wait_for_dense_gradients();
  const Slice layers = plan_.layers_at(place_);
  if (plan_.of_step.norms != kNoTransfer) {
    add(Action::Kind::kNorms, layers, kOwnRows);
    actions_.back().transfer = plan_.of_step.norms;
    exchange(plan_.of_step.norms);
  }
  add(Action::Kind::kNorms, layers, kOwnRows);
  norms_found_ = true;
}

void StepOrder::wait_for_weights() {
  if (updates()) wait_for_buckets(plan_.of_step.weights, plan_.buckets);
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
  for (int64_t i = begin_; i < end_; ++i) {
    if (i > begin_) exchange(layer(i).transfers.input, round);
    if (samples_before(i)) wait(plan_.of_step.labels, round);
    add(Action::Kind::kForward, {i, i + 1}, round);
    exchange(layer(i).transfers.output, round);
  }
  exchange(plan_.of_step.logits, round);
}

void StepOrder::backward_dense(int round) {
  if (!learns_) return;
  for (int64_t i = end_; i-- > begin_ && layer(i).runs_backward();) {
    exchange(layer(i).transfers.output_gradient, round);
    add(Action::Kind::kBackwardData, {i, i + 1}, round);
    start(layer(i).transfers.input_gradient, round);
    backward_weights(i, round);
    if (completes(round)) gradients_done(i);
    if (i > begin_) wait(layer(i).transfers.input_gradient, round);
  }
  if (plan_.loss_follows()) end_loss(round);
}

void StepOrder::update_after(int round) {
  if (learns_ && every_round() && completes(round)) update_dense_after(round);
}

void StepOrder::update_dense() {
  if (updates() && !beside_ && !every_round()) update_dense_after(kOwnRows);
}

void StepOrder::wait_for_dense_gradients() {
  for (int b = 0; b < std::ssize(plan_.back_buckets); ++b)
    if (plan_.is_at(plan_.back_buckets[static_cast<size_t>(b)], place_))
      wait(plan_.of_step.dense_gradients, kOwnRows, b, beside_);
}

void StepOrder::update_dense_after(int round) {
  wait_for_dense_gradients();
  update({dense_, end_}, round, plan_.of_step.dense_gradients, 0, beside_);
}

// If logits are split over several ranks, each rank first computes the statistics that the others need.
void StepOrder::loss(int round) {
  if (!samples_before(std::ssize(plan_.layers) - 1)) wait(plan_.of_step.labels, round);
  if (travels(plan_.of_step.loss_statistics)) {
    add({.kind = Action::Kind::kLoss, .round = round, .transfer = plan_.of_step.loss_statistics});
    start(plan_.of_step.loss_statistics, round);
    if (learns_ && plan_.loss_follows()) return;
  }
  end_loss(round);
}

void StepOrder::end_loss(int round) {
  wait(plan_.of_step.loss_statistics, round);
  add(Action::Kind::kLoss, {}, round);
}

void StepOrder::start_result() {
  if (!updates()) return;
  start(plan_.of_step.result);
  result_started_ = true;
}

void StepOrder::share_result() {
  if (!result_started_) start(plan_.of_step.result);
  wait(plan_.of_step.result);
}

// Whether the gradients of the dense weights are complete after this round of the micro-batch. Rounds without rows on
// any rank do not count.
bool StepOrder::completes(int round) const {
  return every_round() ? round_rows_[static_cast<size_t>(round)] > 0 : is_last_slice() && round + 1 == rounds();
}

bool StepOrder::learns(const Slice& layers) const {
  for (int64_t i = layers.begin; i < layers.end; ++i)
    if (layer(i).learns()) return true;
  return false;
}

bool StepOrder::travels(TransferId id) const {
  return id != kNoTransfer && plan_.ranks_of(plan_.transfer(id).group) > 1 && plan_.transfer(id).in(kind_);
}

// The transfer after which every rank has the sums of the front's gradients.
TransferId StepOrder::summed() const {
  return plan_.of_step.gradient_copies == kNoTransfer ? plan_.of_step.gradients : plan_.of_step.gradient_copies;
}

void StepOrder::backward_weights(int64_t i, int round) {
  if (!layer(i).learns()) return;
  add(Action::Kind::kBackwardWeights, {i, i + 1}, round);
  actions_.back().updates = updates_at_once(plan_, i) && !multiplies_in_update(plan_, i);
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
  add({.kind = Action::Kind::kStart, .round = round, .transfer = transfer, .bucket = bucket, .beside = beside});
}

void StepOrder::wait(TransferId transfer, int round, int bucket, bool beside) {
  if (!travels(transfer)) return;
  // Already waited for before the norms.
  if (plan_.has_norms() && !waited_.insert({transfer, round, bucket}).second) return;
  add({.kind = Action::Kind::kWait, .round = round, .transfer = transfer, .bucket = bucket, .beside = beside});
}

void StepOrder::wait_for_buckets(TransferId transfer, const std::vector<Bucket>& buckets, bool beside) {
  for (int b = 0; b < static_cast<int>(buckets.size()); ++b) wait(transfer, kOwnRows, b, beside);
}

void StepOrder::exchange(TransferId transfer, int round) {
  start(transfer, round);
  wait(transfer, round);
}

void StepOrder::add(Action::Kind kind, const Slice& layers, int round) {
  add({.kind = kind, .layers = layers, .round = round});
}

void StepOrder::add(Action action) {
  action.slice = slice_;
  actions_.push_back(action);
}

void StepOrder::update(const Slice& layers, int round, TransferId summed, int bucket, bool beside) {
  if (!learns(layers)) return;
  add({.kind = Action::Kind::kUpdate,
       .layers = layers,
       .round = round,
       .transfer = travels(summed) ? summed : kNoTransfer,
       .bucket = bucket,
       .beside = beside});
}

}  // namespace owt

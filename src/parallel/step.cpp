// Runs a step: the actions of src/plan/order.cpp, one after the other.
#include "src/parallel/step.h"

#include <algorithm>

#include "src/core/poison.h"
#include "src/plan/back_part.h"

namespace owt {
namespace {

// If this action makes the current weights active again: the stash that was active and is no longer used before it is
// made again or the step ends; else kNewestWeights.
int ended_copy(const std::vector<Action>& actions, size_t at) {
  const auto takes = [&](size_t i) { return actions[i].kind == Action::Kind::kTakeWeights; };
  if (!takes(at) || actions[at].copy != kNewestWeights) return kNewestWeights;
  size_t taken = at;
  while (!takes(--taken)) {
  }
  const int copy = actions[taken].copy;
  for (size_t i = at + 1; i < actions.size(); ++i)
    if (actions[i].copy == copy) return takes(i) ? kNewestWeights : copy;
  return copy;
}

}  // namespace

void Step::queue(const Batch& batch, const Pass& pass, const Slot& slot) {
  Bound& b = bound(batch.step_rows);
  Running now{batch, slot, b, nullptr, pass.mode == Mode::kTrain, pass, pass, {}, {}, {}, {}, {}, false};
  now.front_pass.sums = front_sums_ ? &*front_sums_ : nullptr;
  now.dense_pass.sums = dense_sums_ ? &*dense_sums_ : nullptr;
  int slice = -1;
  const std::vector<Action>& actions = now.learns ? b.training.at(slot.kind) : b.evaluation;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].slice != slice) begin_slice(slice = actions[i].slice, now);
    run(actions[i], now);
    if (!poisons() || !copies_) continue;
    if (const int copy = ended_copy(actions, i); copy != kNewestWeights) copies_->forget(copy, stream_);
  }
  if (now.beside) stream_.wait(beside_.record());
}

void Step::begin_slice(int slice, Running& now) {
  SliceOfStep& its = now.bound.slices[static_cast<size_t>(slice)];
  now.slice = &its;
  now.images = images_of(its, now.batch.images);
  now.labels = now.batch.labels.rows(its.mine.begin, its.mine.end);
  its.front_rows.give_to(now.front_pass);
  its.front->begin_forward(now.images);
}

void Step::run(const Action& action, Running& now) {
  switch (action.kind) {
    case Action::Kind::kForward:
      return forward(action.layers.begin, action.round, now);
    case Action::Kind::kLoss:
      return loss(action, now);
    case Action::Kind::kBackwardData:
      return backward_data(action.layers.begin, action.round, now);
    case Action::Kind::kBackwardWeights:
      return backward_weights(action, now);
    case Action::Kind::kUpdate:
      return options_.updates ? update(action, now) : leave(action.layers);
    case Action::Kind::kStart:
    case Action::Kind::kWait:
      return transfer(action, now);
    case Action::Kind::kCopyWeights:
      return copy_weights(action);
    case Action::Kind::kAverageWeights:
      return average_weights(now);
    case Action::Kind::kNorms:
      return find_norms(action, now);
    case Action::Kind::kTakeWeights:
      return copies_->take(action.copy);
  }
}

void Step::forward(int64_t layer, int round, Running& now) {
  if (layer == plan_.layers_behind(place_).begin) begin_round(round, now);
  begin_sums(layer, Phase::kForward, now);
  if (layer < plan_.boundary) return now.slice->front->forward(now.front_pass, layer);
  dense_of(round, now).tape.forward(now.dense_pass, layer);
}

void Step::begin_sums(int64_t layer, Phase phase, const Running& now) {
  const LayerPlan& at = plan_.layer(layer);
  if (at.transfers.sums == kNoTransfer || !now.learns) return;
  const bool front = layer < plan_.boundary;
  const Pass& pass = front ? now.front_pass : now.dense_pass;
  (front ? front_sums_ : dense_sums_)->begin(at, phase, !pass.rows.empty(), stream_);
}

// If nothing is split, the loss and its gradient belong to the rank's own rows.
void Step::loss(const Action& action, Running& now) {
  const int round = action.round;
  if (!plan_.split()) begin_round(round, now);
  Dense& dense = dense_of(round, now);
  const bool prepares = action.transfer != kNoTransfer;
  if (prepares)
    dense.loss->sum_up(now.dense_pass, logits(round, now), now.labels, now.learns);
  else
    dense.loss->run(now.dense_pass, logits(round, now), now.labels, now.learns, my_sums(), after_loss(now, dense));
  if (now.learns) return take_gradient_of_loss(round, prepares, now);
  if (!prepares) hand_out(logits(round, now), now.slice->dense_rows[static_cast<size_t>(round)]);
}

// What servers collect is read in finish().
void Step::start_result(const Running& now, const Stream& stream) {
  const StepRates& rates = now.slot.block().front;
  const double share = static_cast<double>(now.bound.own_rows) / static_cast<double>(now.batch.step_rows);
  const PushedFor pushed{rates.weights, rates.biases, rates.sgd_share, share};
  const bool told = now.learns && front_sync_->tell(sums_, pushed, now.front_pass.step);
  result_shared_ = told ? Event() : comm_.all_reduce(sums_, stream.record());
}

// If nothing is split, the gradient belongs to the front part's output. prepares: the other ranks' statistics have not
// arrived.
void Step::take_gradient_of_loss(int round, bool prepares, Running& now) {
  if (!plan_.split())
    now.gradient = dense_of(round, now).loss->dlogits();
  else if (!plan_.in_stages() && prepares == plan_.loss_follows())
    begin_backward(round, now);
}

void Step::begin_backward(int round, Running& now) {
  Dense& dense = dense_of(round, now);
  now.gradient = now.slice->seam->home();
  const bool wants_dx = wants_input_gradient(plan_, place_);
  if (wants_dx) now.dense_gradient = now.slice->seam->gradient(round);
  dense.tape.begin_backward(dense.loss->dlogits(), wants_dx ? &now.dense_gradient : nullptr, stream_);
}

// The backward pass of other micro-batches runs between forward and backward of this one.
void Step::begin_backward_of_stage(int batch, Running& now) {
  Dense& dense = dense_of(batch, now);
  StageLinks& links = *now.bound.links;
  now.slice->dense_rows[static_cast<size_t>(batch)].give_to(now.dense_pass);
  now.gradient = plan_.has_loss(place_) ? dense.loss->dlogits() : links.output_gradient(batch);
  const bool wants_dx = wants_input_gradient(plan_, place_);
  now.dense_gradient = wants_dx ? links.input_gradient(batch) : Tensor();
  dense.tape.begin_backward(now.gradient, wants_dx ? &now.dense_gradient : nullptr, stream_);
}

void Step::backward_data(int64_t layer, int round, Running& now) {
  if (plan_.in_stages() && layer + 1 == plan_.layers_behind(place_).end) begin_backward_of_stage(round, now);
  begin_sums(layer, Phase::kBackward, now);
  if (layer >= plan_.boundary) return dense_of(round, now).tape.backward_data(now.dense_pass, layer);
  Tape& front = *now.slice->front;
  if (layer + 1 == plan_.boundary) front.begin_backward(now.images, now.gradient, nullptr);
  front.backward_data(now.front_pass, layer);
}

void Step::backward_weights(const Action& action, Running& now) {
  const int64_t layer = action.layers.begin;
  if (action.updates) {
    Param& weight = *model_.layer(layer).params()[0];
    if (!options_.updates)
      weight.update = leave_in_pieces(weight);
    else if (rows_behind(action, now) == 0)
      weight.update = [](int64_t, int64_t, const float*) {};
    else
      weight.update = optimizer_.update_in_pieces(weight, rates_of(action, now), gradient_scale(action, now));
  }
  if (layer >= plan_.boundary) return dense_of(action.round, now).tape.backward_weights(now.dense_pass, layer);
  now.slice->front->backward_weights(now.front_pass, layer);
}

// The number of rows whose gradient updates these layers: the rows of the whole step; of the round, if an update
// follows it; of this rank, for the front part in a local step.
int64_t Step::rows_behind(const Action& action, const Running& now) const {
  if (action.round != kOwnRows) return now.slice->round_rows[static_cast<size_t>(action.round)];
  const bool local = now.slot.kind != StepKind::kSynchronous && action.layers.begin < plan_.boundary;
  return local ? now.bound.own_rows : now.batch.step_rows;
}

// The loss is divided by the rows of the whole step.
double Step::gradient_scale(const Action& action, const Running& now) const {
  return static_cast<double>(now.batch.step_rows) / static_cast<double>(rows_behind(action, now));
}

// Actions queued after an update on the second stream read nothing that the update writes.
void Step::update(const Action& action, Running& now) {
  const Stream& stream = stream_of(action);
  now.beside = now.beside || &stream == &beside_;
  if (action.beside && action.transfer == kNoTransfer) stream.wait(stream_.record());
  if (!front_sync_->share(action.bucket).empty()) {
    const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
    return front_sync_->update_share(action.bucket, [&](std::span<const ParamPart> parts) {
      optimizer_.update(parts, rates_of(action, now), 1, stream);
    });
  }
  if (rows_behind(action, now) == 0) return leave(action.layers);
  update(action.layers, rates_of(action, now), gradient_scale(action, now), stream);
}

void Step::copy_weights(const Action& action) {
  const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
  copies_->make(action.copy, action.ahead, stream_);
}

void Step::average_weights(const Running& now) {
  if (!now.slot.averages) return;
  const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
  ema_->update(now.slot.block().kept, kept_, stream_);
}

// Squares are added up before a transfer or, without one, before the norms are computed. A single rank writes the norm
// to host memory.
void Step::find_norms(const Action& action, const Running& now) {
  const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
  if (action.transfer != kNoTransfer || plan_.of_step.norms == kNoTransfer) norms_->add_up(stream_);
  if (action.transfer != kNoTransfer) return;
  Tensor norm = part_of(alone() ? now.slot.host : block_, offsetof(Block, gradient_norm), DType::kF64, 1);
  norms_->settle(rows_behind(action, now) == 0 ? 0 : gradient_scale(action, now), norm, stream_);
}

void Step::transfer(const Action& action, Running& now) {
  const auto transfer = static_cast<size_t>(action.transfer);
  const Profiler::Scope scope(profiler_, plan_.transfers[transfer].name, Phase::kTransfer);
  const Move& move = moves_[transfer];
  (action.kind == Action::Kind::kStart ? move.start : move.wait)(action, now, stream_of(action));
}

std::vector<Step::Move> Step::moves() {
  std::vector<Move> all(plan_.transfers.size());
  for (size_t id = 0; id < all.size(); ++id)  // transfers not set below move features between dense layers
    all[id] = {[=, this](const Action& action, Running& now, const Stream& stream) {
                 dense_of(action.round, now).tape.start(static_cast<TransferId>(id), stream);
               },
               [=, this](const Action& action, Running& now, const Stream& stream) {
                 dense_of(action.round, now).tape.wait(static_cast<TransferId>(id), stream);
               }};
  add_moves_of_gradients(all);
  add_moves_of_rounds(all);
  if (plan_.in_stages()) add_moves_of_stages(all);
  return all;
}

void Step::add_moves_of_gradients(std::vector<Move>& moves) {
  using Do = void (WeightSync::*)(int bucket, const Stream& stream);
  const auto add = [&](TransferId id, WeightSync& sync, Do start, Do wait) {
    if (id == kNoTransfer) return;
    moves[static_cast<size_t>(id)] = {
        [=, &sync](const Action& action, Running&, const Stream& stream) { (sync.*start)(action.bucket, stream); },
        [=, &sync](const Action& action, Running&, const Stream& stream) { (sync.*wait)(action.bucket, stream); }};
  };
  const StepTransfers& of = plan_.of_step;
  add(of.gradients, *front_sync_, &WeightSync::start_gradients, &WeightSync::wait_for_gradients);
  add(of.gradient_copies, *front_sync_, &WeightSync::start_copies, &WeightSync::wait_for_gradients);
  add(of.weights, *front_sync_, &WeightSync::start_weights, &WeightSync::wait_for_weights);
  add(of.dense_gradients, *dense_sync_, &WeightSync::start_gradients, &WeightSync::wait_for_gradients);
  if (of.norms != kNoTransfer)
    moves[static_cast<size_t>(of.norms)] = {
        [this](const Action&, Running&, const Stream& stream) {
          norms_shared_ =
              groups_.of(plan_.transfer(plan_.of_step.norms).group).all_reduce(norms_->sums(), stream.record());
        },
        [this](const Action&, Running&, const Stream& stream) { stream.wait(norms_shared_); }};
  if (of.averages == kNoTransfer) return;
  moves[static_cast<size_t>(of.averages)] = {
      [this](const Action& action, Running&, const Stream& stream) { average_->start(action.bucket, share_, stream); },
      [this](const Action& action, Running&, const Stream& stream) { average_->wait(action.bucket, stream); }};
}

void Step::add_moves_of_rounds(std::vector<Move>& moves) {
  using Act = const Action&;
  using Now = Running&;
  using On = const Stream&;
  const auto add = [&](TransferId id, const auto& start, const auto& wait) {
    if (id != kNoTransfer) moves[static_cast<size_t>(id)] = {start, wait};
  };
  const StepTransfers& of = plan_.of_step;
  add(
      of.labels, [](Act, Now now, On on) { now.slice->labels->start(now.labels, on); },
      [](Act action, Now now, On on) { now.labels = now.slice->labels->wait(action.round, on); });
  add(
      of.loss_statistics,
      [this](Act action, Now now, On on) { dense_of(action.round, now).loss->start_statistics(on); },
      [this](Act action, Now now, On on) { dense_of(action.round, now).loss->wait_for_statistics(on); });
  add(
      of.result, [this](Act, Now now, On on) { start_result(now, on); },
      [this](Act, Now, On on) { on.wait(result_shared_); });
  if (!plan_.split() || plan_.in_stages()) return;
  const LayerTransfers& seam = plan_.layer(plan_.boundary).transfers;
  add(
      seam.input,
      [](Act action, Now now, On on) { now.slice->seam->start(action.round, now.slice->front->output(), on); },
      [](Act action, Now now, On on) { now.dense_batch = now.slice->seam->wait(action.round, on); });
  add(
      seam.input_gradient, [](Act action, Now now, On on) { now.slice->seam->start_back(action.round, on); },
      [](Act action, Now now, On on) { now.slice->seam->wait_back(action.round, on); });
}

// A message from one neighbour and a message to the other are the same transfer of the plan, seen from its two ends.
void Step::add_moves_of_stages(std::vector<Move>& moves) {
  using Act = const Action&;
  using Now = Running&;
  using On = const Stream&;
  const auto add = [&](TransferId id, const auto& start, const auto& wait) {
    if (id != kNoTransfer) moves[static_cast<size_t>(id)] = {start, wait};
  };
  const Slice here = plan_.layers_behind(place_);
  if (place_ > 0) {
    const LayerTransfers& first = plan_.layer(here.begin).transfers;
    add(
        first.input, [](Act action, Now now, On on) { now.bound.links->start_input(action.round, on); },
        [](Act action, Now now, On on) { now.bound.links->wait_for_input(action.round, on); });
    add(
        first.input_gradient,
        [](Act action, Now now, On on) { now.bound.links->send_input_gradient(action.round, on); },
        [](Act action, Now now, On on) { now.bound.links->wait_for_sent_gradient(action.round, on); });
  }
  if (plan_.has_loss(place_)) return;
  const LayerTransfers& next = plan_.layer(here.end).transfers;
  add(
      next.input,
      [this](Act action, Now now, On on) {
        now.bound.links->send_output(action.round, dense_of(action.round, now).tape.output(), on);
      },
      [](Act action, Now now, On on) { now.bound.links->wait_for_sent_output(action.round, on); });
  add(
      next.input_gradient, [](Act action, Now now, On on) { now.bound.links->start_output_gradient(action.round, on); },
      [](Act action, Now now, On on) { now.bound.links->wait_for_output_gradient(action.round, on); });
}

}  // namespace owt

#include "src/parallel/step_runner.h"

#include "src/plan/back_part.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"

namespace owt {

StepMoves::StepMoves(const Plan& plan, int place, Communicator& world, StepWeights& weights, const StepBlock& block)
    : of_step_(plan.of_step), world_(world), weights_(weights), block_(block) {
  const Slice here = plan.back_layers(place);
  if (here.size() > 0) input_ = plan.layer(here.begin).transfers;
  if (!plan.has_loss(place)) output_ = plan.layer(here.end).transfers;
}

void StepMoves::start(const Action& action, StepState& now, const Stream& stream) {
  const TransferId id = action.transfer;
  const int round = action.round;
  MicroBatch& micro = *now.micro;
  if (id == of_step_.labels) return micro.labels->start(now.labels, stream);
  if (id == of_step_.loss_statistics) return now.back(round).loss->start_statistics(stream);
  if (id == of_step_.result) return start_result(now, stream);
  if (id == input_.input) return micro.seam->start(round, micro.front->output(), stream);
  if (id == input_.input_gradient) return micro.seam->start_back(round, stream);
  if (id == output_.input) return micro.seam->send_output(round, now.back(round).tape.output(), stream);
  if (id == output_.input_gradient) return micro.seam->start_output_gradient(round, stream);
  if (!weights_.start(action, block_.share(), stream)) now.back(round).tape.start(id, stream);
}

void StepMoves::wait(const Action& action, StepState& now, const Stream& stream) {
  const TransferId id = action.transfer;
  const int round = action.round;
  MicroBatch& micro = *now.micro;
  if (id == of_step_.labels) return void(now.labels = micro.labels->wait(round, stream));
  if (id == of_step_.loss_statistics) return now.back(round).loss->wait_for_statistics(stream);
  if (id == of_step_.result) return stream.wait(result_shared_);
  if (id == input_.input) return void(now.back_input = micro.seam->wait(round, stream));
  if (id == input_.input_gradient) return micro.seam->wait_back(round, stream);
  if (id == output_.input) return micro.seam->wait_for_sent_output(round, stream);
  if (id == output_.input_gradient) return micro.seam->wait_for_output_gradient(round, stream);
  if (!weights_.wait(action, stream)) now.back(round).tape.wait(id, stream);
}

// What servers collect is read when the step has finished.
void StepMoves::start_result(const StepState& now, const Stream& stream) {
  Tensor sums = block_.sums(now.back_pass.sampled ? kStepSums + 1 : kStepSums);
  const StepRates& rates = now.host.values().front;
  const double share = static_cast<double>(now.program.own_rows()) / static_cast<double>(now.batch.step_rows);
  const PushedFor pushed{rates.weights, rates.biases, rates.sgd_share, share};
  const bool served = now.learns && weights_.front().start_push(sums, pushed, now.front_pass.step);
  result_shared_ = served ? Event() : world_.all_reduce(sums, stream.record());
}

StepRunner::StepRunner(const Plan& plan, const Groups& groups, StepWeights& weights, Profiler* profiler,
                       const LogitsReceiver& logits, const Stream& stream)
    : plan_(plan),
      groups_(groups),
      weights_(weights),
      profiler_(profiler),
      logits_(logits),
      stream_(stream),
      beside_(stream.device(), Priority::kLow),
      block_(Tensor(StepBlock::shape(), DType::kU8, stream.device())),
      others_sums_({kLossSums}, DType::kF64, stream.device()),
      moves_(plan, place(), groups.world(), weights, block_) {
  if (const LayerPlan& last = plan.layers.back(); !last.sampled.empty()) {
    const std::vector<Slice> whole{{0, last.columns_out()}};
    sample_.emplace(last.parts.empty() ? whole : last.parts, last.sampled, place(), plan.request.loss.sample,
                    plan.request.step_rows, stream.device());
    weights.update_rows(sample_->rows().rows);
  }
  if (most_step_sums(plan) == 0) return;
  const Group front = plan.front_group();
  if (plan.ranks_of(front) > 1) front_sums_.emplace(plan, place(), groups.of(front), profiler);
  if (plan.replicas() > 1) back_sums_.emplace(plan, place(), groups.replicas(), profiler);
}

void StepRunner::run(StepState& now) {
  now.front_pass.sums = front_sums_ ? &*front_sums_ : nullptr;
  now.back_pass.sums = back_sums_ ? &*back_sums_ : nullptr;
  const std::vector<Action>& actions =
      now.learns ? now.program.training(now.kind, now.updates_beside) : now.program.evaluation();
  for (size_t i = 0; i < actions.size(); ++i) {
    MicroBatch& micro = now.program.micro_batch(actions[i].slice);
    if (&micro != now.micro) begin(micro, now);
    run(actions[i], now);
    weights_.poison_after(actions, i, stream_);
  }
  if (now.beside) stream_.wait(beside_.record());
}

void StepRunner::begin(MicroBatch& micro, StepState& now) {
  now.micro = &micro;
  now.images = micro.images_of(now.batch.images, stream_);
  now.labels = now.batch.labels.rows(micro.mine.begin, micro.mine.end);
  if (now.batch.hint.defined()) now.front_pass.hint = now.batch.hint.rows(micro.mine.begin, micro.mine.end);
  micro.front_rows.give_to(now.front_pass);
  micro.front->begin_forward(now.images);
}

void StepRunner::run(const Action& action, StepState& now) {
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
      return update(action, now);
    case Action::Kind::kStart:
    case Action::Kind::kWait:
      return transfer(action, now);
    case Action::Kind::kCopyWeights:
      return weights_.copy(action, stream_);
    case Action::Kind::kAverageWeights:
      return average(now);
    case Action::Kind::kNorms:
      return find_norms(action, now);
    case Action::Kind::kTakeWeights:
      return weights_.take(action.copy);
  }
}

void StepRunner::forward(int64_t layer, int round, StepState& now) {
  if (layer == plan_.back_layers(place()).begin) begin_round(round, now);
  begin_sums(layer, Phase::kForward, now);
  if (sample_ && now.learns && layer + 1 == std::ssize(plan_.layers)) draw_sample(now);
  if (layer < plan_.boundary) return now.micro->front->forward(now.front_pass, layer);
  now.back(round).tape.forward(now.back_pass, layer);
}

// Once a step, before the last layer's forward of the first round; the labels of all rows have arrived.
void StepRunner::draw_sample(StepState& now) {
  if (now.back_pass.sampled) return;
  const Profiler::Scope scope(profiler_, "sample", Phase::kForward);
  StepLabels* const labels = now.micro->labels.get();
  const bool counts = groups_.world().rank() < plan_.model_ranks;  // the ranks of one copy of the layer
  Tensor counter = counts ? (alone() ? now.host : block_).sampled_classes() : others_sums_;
  sample_->draw(now.back_pass, labels ? labels->of_step(stream_) : now.labels, counter);
  now.front_pass.sampled = now.back_pass.sampled = &sample_->rows();
}

// The input of the back part has arrived by a transfer, or is made here.
void StepRunner::begin_round(int round, StepState& now) {
  MicroBatch& micro = *now.micro;
  micro.back_rows[static_cast<size_t>(round)].give_to(now.back_pass);
  if (!moves_.brings_input()) {
    micro.seam->start(round, micro.front->output(), stream_);
    now.back_input = micro.seam->wait(round, stream_);
  }
  now.back(round).tape.begin_forward(now.back_input);
}

void StepRunner::begin_sums(int64_t layer, Phase phase, const StepState& now) {
  const LayerPlan& at = plan_.layer(layer);
  if (at.transfers.sums == kNoTransfer || !now.learns) return;
  const bool front = layer < plan_.boundary;
  const Pass& pass = front ? now.front_pass : now.back_pass;
  (front ? front_sums_ : back_sums_)->begin(at, phase, !pass.rows.empty(), stream_);
}

// Without layers in the back part the round begins here. A loss whose action prepares a transfer is not computed yet;
// under Plan::loss_follows() it has its gradient already. Between a stage's loss and its backward pass other
// micro-batches may run.
void StepRunner::loss(const Action& action, StepState& now) {
  const int round = action.round;
  if (!plan_.split()) begin_round(round, now);
  BackPart& back = now.back(round);
  const Tensor& logits = back.tape.output();
  Tensor labels = now.micro->seam->labels(round, now.labels);
  if (now.back_pass.sampled) labels = sample_->columns_of(labels, stream_);
  const RowIndexes& rows = now.micro->back_rows[static_cast<size_t>(round)];
  const bool prepares = action.transfer != kNoTransfer;
  if (prepares)
    back.loss->sum_up(now.back_pass, logits, labels, now.learns);
  else
    back.loss->run(now.back_pass, logits, labels, now.learns, my_sums(), after_loss(now, back));
  if (now.learns) {
    if (!now.micro->seam->backward_is_apart() && prepares == plan_.loss_follows()) begin_backward(round, now);
  } else if (!prepares && logits_ && rows.size() > 0) {
    logits_(logits, rows.host, stream_);
  }
}

// One of the ranks that see the same rows counts them. The others still need memory for their sums.
Tensor StepRunner::my_sums() {
  if (counts_rows(plan_, groups_.world().rank())) return block_.sums(kStepSums);
  others_sums_.zero(stream_);
  return others_sums_;
}

// A single rank need not add its sums to others; they go to the host from here.
LossFollowUp StepRunner::after_loss(const StepState& now, const BackPart& back) const {
  const bool forgets = !now.learns && stream_.device() == Device::kCpu;
  LossFollowUp then{forgets ? std::vector<Watched>{} : now.micro->front->watched(0), block_.bad_layer()};
  for (Watched& one : back.tape.watched()) then.watched.push_back(std::move(one));
  if (!alone()) return then;
  then.sums_for_host = now.host.sums(kLossSums);
  then.first_for_host = now.host.bad_layer();
  return then;
}

void StepRunner::begin_backward(int round, StepState& now) {
  BackPart& back = now.back(round);
  MicroBatch& micro = *now.micro;
  micro.back_rows[static_cast<size_t>(round)].give_to(now.back_pass);
  const bool wants_dx = wants_input_gradient(plan_, place());
  if (wants_dx) now.back_gradient = micro.seam->gradient(round);
  if (!back.loss) now.gradient = micro.seam->output_gradient(round);
  const Tensor& dy = back.loss ? back.loss->dlogits() : now.gradient;
  back.tape.begin_backward(dy, wants_dx ? &now.back_gradient : nullptr, stream_);
  if (back.loss) now.gradient = plan_.split() ? micro.seam->home() : dy;
}

void StepRunner::backward_data(int64_t layer, int round, StepState& now) {
  if (now.micro->seam->backward_is_apart() && layer + 1 == plan_.back_layers(place()).end) begin_backward(round, now);
  begin_sums(layer, Phase::kBackward, now);
  if (layer >= plan_.boundary) return now.back(round).tape.backward_data(now.back_pass, layer);
  Tape& front = *now.micro->front;
  if (layer + 1 == plan_.boundary) front.begin_backward(now.images, now.gradient, nullptr);
  front.backward_data(now.front_pass, layer);
}

void StepRunner::backward_weights(const Action& action, StepState& now) {
  const int64_t layer = action.layers.begin;
  if (action.updates) weights_.update_in_backward(layer, rates_of(action, now), gradient_scale(action, now));
  if (layer >= plan_.boundary) return now.back(action.round).tape.backward_weights(now.back_pass, layer);
  now.micro->front->backward_weights(now.front_pass, layer);
}

// Actions queued after an update on the second stream read nothing that the update writes.
void StepRunner::update(const Action& action, StepState& now) {
  const Stream& stream = stream_of(action);
  now.beside = now.beside || &stream == &beside_;
  if (action.beside && action.transfer == kNoTransfer) stream.wait(stream_.record());
  weights_.update(action, rates_of(action, now), gradient_scale(action, now), stream);
}

void StepRunner::average(const StepState& now) {
  if (!now.averages) return;
  const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
  weights_.ema()->update(now.host.values().kept, block_.kept(), stream_);
  if (plan_.request.lookahead) weights_.ema()->give(stream_);
}

// A single rank writes the norm to host memory.
void StepRunner::find_norms(const Action& action, const StepState& now) {
  weights_.find_norms(action, gradient_scale(action, now), (alone() ? now.host : block_).gradient_norm(), stream_);
}

void StepRunner::transfer(const Action& action, StepState& now) {
  const Profiler::Scope scope(profiler_, plan_.transfer(action.transfer).name, Phase::kTransfer);
  if (action.kind == Action::Kind::kStart)
    moves_.start(action, now, stream_of(action));
  else
    moves_.wait(action, now, stream_of(action));
}

// The number of rows whose gradient updates these layers: the rows of the whole step; of the round, if an update
// follows it; of this rank, for the front part in a local step.
int64_t StepRunner::rows_of_update(const Action& action, const StepState& now) const {
  if (action.round != kOwnRows) return now.micro->round_rows[static_cast<size_t>(action.round)];
  const bool local = now.kind != StepKind::kSynchronous && action.layers.begin < plan_.boundary;
  return local ? now.program.own_rows() : now.batch.step_rows;
}

// The loss is divided by the rows of the whole step. 0: there are no rows.
double StepRunner::gradient_scale(const Action& action, const StepState& now) const {
  const int64_t rows = rows_of_update(action, now);
  return rows == 0 ? 0 : static_cast<double>(now.batch.step_rows) / static_cast<double>(rows);
}

// In the back part the dense layers have a rate of their own, and possibly an update after every round.
Optimizer::Rates StepRunner::rates_of(const Action& action, const StepState& now) const {
  const StepValues& values = now.host.values();
  if (action.layers.begin < plan_.boundary) return {values.front, block_.front_rates()};
  const int earlier = action.round == kOwnRows ? 0 : now.program.updates_before(action.round, *now.micro);
  return {values.back, block_.back_rates(), earlier};
}

// A profiled step runs everything on one stream, so that its parts add up to its total.
const Stream& StepRunner::stream_of(const Action& action) const {
  return action.beside && !profiles() ? beside_ : stream_;
}

}  // namespace owt

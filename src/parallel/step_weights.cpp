#include "src/parallel/step_weights.h"

#include <algorithm>

#include "src/core/poison.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_updates.h"

namespace owt {
namespace {

WeightSync::LayerOf layer_of(RankModel& model) {
  return [&model](int64_t layer) -> Layer& { return model.layer(layer); };
}

std::unique_ptr<WeightSync> make_front(const Plan& plan, RankModel& model, Optimizer& optimizer, const Groups& groups,
                                       const StepOptions& options) {
  return make_front_sync(plan, layer_of(model), groups, [&] {
    OWT_CHECK(options.make_served && options.updates, "servers update the weights");
    return options.make_served(plan, layer_of(model), groups.wire(Group::kWorld), optimizer, options.seed);
  });
}

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

// In a step that updates, this gradient has no memory.
TakeGradient leave_in_pieces(Param& weight) {
  if (!weight.grad.defined()) weight.grad = Tensor(weight.shape());
  return [to = weight.grad.data()](int64_t first, int64_t count, const float* gradient) {
    std::copy_n(gradient, count, to + first);
  };
}

}  // namespace

StepWeights::StepWeights(const Plan& plan, RankModel& model, Optimizer& optimizer, const Groups& groups,
                         Profiler* profiler, const StepOptions& options)
    : plan_(plan),
      model_(model),
      optimizer_(optimizer),
      groups_(groups),
      profiler_(profiler),
      updates_(options.updates),
      front_(make_front(plan, model, optimizer, groups, options)),
      back_(make_dense_sync(plan, layer_of(model), groups)) {
  if (plan.of_step.averages != kNoTransfer) average_.emplace(plan, layer_of(model), groups.world());
  model.allocate(plan.request.on);
  for (const Param* param : model.params()) {
    if (param->role != ParamRole::kTrained) continue;
    const std::vector<Tensor> averaged = average_ ? average_->states(*param) : std::vector<Tensor>();
    if (!averaged.empty()) optimizer.keep_states_in(*param, averaged);
    optimizer.states(*param, updated(*param));
  }
  if (plan.request.ema_every > 0) ema_.emplace(model.params());
  if (const int64_t most = most_matrix_elements(plan, groups.model().rank()); most > 0)
    optimizer.reserve_matrices(most, plan.request.on.device);
  if (plan.of_step.matrices != kNoTransfer)
    optimizer.gather_by(matrices_.emplace(plan, model, groups.of(matrix_group(plan)), profiler));
  if (plan.has_norms()) optimizer.go_by(norms_.emplace(plan, model, *front_, groups.model().rank(), options.norms));
}

bool StepWeights::start(const Action& action, const Tensor& share, const Stream& stream) {
  const StepTransfers& of = plan_.of_step;
  const TransferId id = action.transfer;
  if (id == of.gradients)
    front_->start_gradients(action.bucket, stream);
  else if (id == of.gradient_copies)
    front_->start_copies(action.bucket, stream);
  else if (id == of.weights)
    front_->start_weights(action.bucket, stream);
  else if (id == of.dense_gradients)
    back_->start_gradients(action.bucket, stream);
  else if (id == of.averages)
    average_->start(action.bucket, share, stream);
  else if (id == of.norms)
    norms_shared_ = groups_.of(plan_.transfer(id).group).all_reduce(norms_->sums(), stream.record());
  else
    return false;
  return true;
}

bool StepWeights::wait(const Action& action, const Stream& stream) {
  const StepTransfers& of = plan_.of_step;
  const TransferId id = action.transfer;
  if (id == of.gradients || id == of.gradient_copies)
    front_->wait_for_gradients(action.bucket, stream);
  else if (id == of.weights)
    front_->wait_for_weights(action.bucket, stream);
  else if (id == of.dense_gradients)
    back_->wait_for_gradients(action.bucket, stream);
  else if (id == of.averages)
    average_->wait(action.bucket, stream);
  else if (id == of.norms)
    stream.wait(norms_shared_);
  else
    return false;
  return true;
}

void StepWeights::update_rows(const Tensor& rows) {
  for (Param* param : model_.layer(std::ssize(plan_.layers) - 1).params()) param->grad_rows = rows;
}

void StepWeights::update(const Action& action, const Optimizer::Rates& rates, double gradient_scale,
                         const Stream& stream) {
  if (!updates_) return leave(action.layers);
  if (!front_->share(action.bucket).empty()) {
    const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
    return front_->update_share(action.bucket,
                                [&](std::span<const ParamPart> parts) { optimizer_.update(parts, rates, 1, stream); });
  }
  if (gradient_scale == 0) return leave(action.layers);
  update(action.layers, rates, gradient_scale, stream);
}

// Without rows nothing is updated. The next gradient must not be added to an old one that may still be in memory.
void StepWeights::leave(const Slice& layers) {
  for (int64_t i = layers.begin; i < layers.end; ++i)
    for (Param* param : model_.layer(i).params()) {
      param->grad_is_zero = true;
      param->factors.reset();
    }
}

// On a GPU, one call for all parameters. On the CPU a parameter without gradient memory has already been updated piece
// by piece.
void StepWeights::update(const Slice& layers, const Optimizer::Rates& rates, double gradient_scale,
                         const Stream& stream) {
  std::vector<Param*> together;
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    std::vector<Param*> params = model_.layer(i).params();
    const bool on_gpu = stream.device() == Device::kCuda;
    std::erase_if(params,
                  [&](const Param* param) { return (!param->keeps_grad && !on_gpu) || !owt::learns(param->role); });
    if (on_gpu)
      together.insert(together.end(), params.begin(), params.end());
    else
      update(params, model_.layer(i).name(), rates, gradient_scale, stream);
  }
  update(together, "weights", rates, gradient_scale, stream);
}

void StepWeights::update(std::span<Param* const> params, const std::string& name, const Optimizer::Rates& rates,
                         double gradient_scale, const Stream& stream) {
  if (params.empty()) return;
  const Profiler::Scope scope(profiler_, name, Phase::kUpdate);
  optimizer_.update(params, rates, gradient_scale, stream);
}

void StepWeights::update_in_backward(int64_t layer, const Optimizer::Rates& rates, double gradient_scale) {
  Param& weight = *model_.layer(layer).params()[0];
  if (!updates_)
    weight.update = leave_in_pieces(weight);
  else if (gradient_scale == 0)
    weight.update = [](int64_t, int64_t, const float*) {};
  else
    weight.update = optimizer_.update_in_pieces(weight, rates, gradient_scale);
}

// Squares are added up before a transfer or, without one, before the norms are computed.
void StepWeights::find_norms(const Action& action, double gradient_scale, Tensor norm, const Stream& stream) {
  const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
  const bool prepares = action.transfer != kNoTransfer;
  if (prepares || plan_.of_step.norms == kNoTransfer) norms_->add_up(stream);
  if (!prepares) norms_->settle(gradient_scale, norm, stream);
}

void StepWeights::make_copies(const std::vector<Action>& actions) {
  const int copies = weight_copies(actions);
  if (copies_ || copies == 0) return;
  std::vector<Param*> trained = model_.params();
  std::erase_if(trained, [](const Param* param) { return param->role != ParamRole::kTrained; });
  copies_.emplace(trained, copies, optimizer_);
}

void StepWeights::copy(const Action& action, const Stream& stream) {
  const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
  copies_->make(action.copy, action.ahead, stream);
}

void StepWeights::poison_after(const std::vector<Action>& actions, size_t at, const Stream& stream) const {
  if (!poisons() || !copies_) return;
  if (const int copy = ended_copy(actions, at); copy != kNewestWeights) copies_->forget(copy, stream);
}

}  // namespace owt

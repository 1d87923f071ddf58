#include "src/parallel/rank_model.h"

#include "layers/registry.h"

namespace owt {

RankModel::RankModel(const Model& model, const Plan& plan, int rank) {
  std::vector<std::unique_ptr<Layer>> run;
  Shape run_in = model.input;
  const auto close_run = [&] {
    auto net = std::make_unique<Net>(std::move(run), run_in);
    run.clear();
    if (!front_)
      front_ = std::move(net);
    else
      stages_.push_back(std::move(net));
  };
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    if (static_cast<int64_t>(i) == plan.boundary || at.gather_before) {
      close_run();
      run_in = at.in;
      first_.push_back(static_cast<int64_t>(i));
    }
    std::optional<Slice> part;
    if (at.layout == Layout::kFeature) part = at.parts[static_cast<size_t>(rank % plan.model_ranks)];
    run.push_back(make_layer(model.layers[i], at.in, part));
  }
  close_run();
}

Layer& RankModel::layer(int64_t i) const {
  if (i < front_->size()) return front_->layer(i);
  size_t s = stages_.size() - 1;
  while (first_[s] > i) --s;
  return stages_[s]->layer(i - first_[s]);
}

std::vector<Param*> RankModel::back_params() const {
  std::vector<Param*> all;
  for (const auto& stage : stages_)
    for (Param* param : stage->params()) all.push_back(param);
  return all;
}

std::vector<Param*> RankModel::params() const {
  std::vector<Param*> all = front_params();
  for (Param* param : back_params()) all.push_back(param);
  return all;
}

void RankModel::allocate(const Compute& on) {
  for (Param* param : params()) param->allocate(on);
}

void RankModel::initialize(uint64_t seed) {
  for (Param* param : params()) param->initialize(seed);
}

BackTape::BackTape(const Plan& plan, RankModel& model, int64_t rows, Communicator& comm, Profiler* profiler)
    : model_(model) {
  const Compute& on = plan.request.on;
  for (int64_t s = 0; s < model.stages(); ++s) {
    const int64_t first = model.first_layer(s);
    const LayerPlan& at = plan.layers[static_cast<size_t>(first)];
    Stage stage{{}, plan.gradient_layout(first), Tape(model.stage(s), rows, on, profiler), nullptr, {}};
    if (s > 0) {
      const LayerPlan& before = plan.layers[static_cast<size_t>(first - 1)];
      stage.gather.emplace(at.name + " input", before.parts, rows, on, comm, profiler);
      stage.dx = Tensor(at.in.batch_of(rows), activation_type(on.precision), on.device);
    }
    stages_.push_back(std::move(stage));
  }
  if (plan.split() && plan.layers.back().layout == Layout::kFeature)
    logits_.emplace("logits", plan.layers.back().parts, rows, on, comm, profiler);
}

const Tensor& BackTape::forward(const Pass& pass, const Tensor& x) {
  const Tensor* at = &x;
  for (Stage& stage : stages_) {
    stage.x = stage.gather ? &stage.gather->forward(*at, *pass.stream) : at;
    at = &stage.tape.forward(pass, *stage.x);
  }
  return logits_ ? logits_->forward(*at, *pass.stream) : *at;
}

void BackTape::backward(const Pass& pass, const Tensor& dlogits, Tensor* dx, const BackwardHooks& hooks) {
  if (stages_.empty()) {
    if (dx) dx->copy_from(dlogits, *pass.stream);
    if (hooks.dx_done) hooks.dx_done();
    return;
  }
  const Tensor* gradient = logits_ ? &logits_->backward(dlogits, Layout::kReplicated, *pass.stream) : &dlogits;
  for (size_t s = stages_.size(); s-- > 0;) {
    Stage& stage = stages_[s];
    BackwardHooks inner;
    if (hooks.layer_done)
      inner.layer_done = [&, first = model_.first_layer(static_cast<int64_t>(s))](int64_t i) {
        hooks.layer_done(first + i);
      };
    inner.dx_done =
        stage.gather ? [&] { stage.gather->start_backward(stage.dx, stage.gradient, *pass.stream); } : hooks.dx_done;
    stage.tape.backward(pass, *stage.x, *gradient, stage.gather ? &stage.dx : dx, inner);
    if (stage.gather) gradient = &stage.gather->finish_backward(*pass.stream);
  }
}

void BackTape::find_bad_layer(const Stream& stream, const Tensor& sums, Tensor& first) const {
  for (size_t s = 0; s < stages_.size(); ++s)
    stages_[s].tape.find_bad_layer(stream, sums, model_.first_layer(static_cast<int64_t>(s)), first);
}

int64_t BackTape::bytes() const {
  int64_t total = 0;
  for (const Stage& stage : stages_) total += stage.tape.bytes() + (stage.dx.defined() ? stage.dx.bytes() : 0);
  return total;
}

}  // namespace owt

#include "src/parallel/rank_model.h"

#include "src/net/layer_types.h"

namespace owt {

namespace {

// Of one row, as the rank at this place of its model group gets it.
Shape input_of(const Plan& plan, int64_t layer, size_t place) {
  const LayerPlan& at = plan.layers[static_cast<size_t>(layer)];
  if (at.by_inputs()) return {at.inputs[place].size()};
  if (layer == plan.boundary || at.gather_before) return at.in;
  return {plan.layers[static_cast<size_t>(layer - 1)].parts[place].size()};
}

}  // namespace

RankModel::RankModel(const Model& model, const Plan& plan, int rank) {
  const auto place = static_cast<size_t>(rank % plan.model_ranks);
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
    const bool at_boundary = static_cast<int64_t>(i) == plan.boundary;
    if (at_boundary || at.gather_before || (i > 0 && plan.layers[i - 1].by_inputs())) {
      close_run();
      run_in = input_of(plan, static_cast<int64_t>(i), place);
      first_.push_back(static_cast<int64_t>(i));
    }
    std::optional<Slice> part, inputs;
    if (at.by_inputs())
      inputs = at.inputs[place];
    else if (at.layout == Layout::kFeature)
      part = at.parts[place];
    run.push_back(make_layer(model.layers[i], at.in, part, inputs, net_layer_types()));
    const std::vector<Param*> params = run.back()->params();
    for (size_t p = 0; p < params.size(); ++p) params[p]->grad_type = plan.gradient_type(static_cast<int64_t>(i), p);
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
  const auto layer = [&](int64_t i) -> const LayerPlan& { return plan.layers[static_cast<size_t>(i)]; };
  for (int64_t s = 0; s < model.stages(); ++s) {
    const int64_t first = model.first_layer(s), last = first + model.stage(s).size() - 1;
    Stage stage{{}, plan.gradient_layout(first), Tape(model.stage(s), rows, on, profiler), {}, nullptr, {}};
    const std::string input = layer(first).name + " input", output = layer(last).name + " output";
    if (layer(first).gather_before)
      stage.gather.emplace(FeatureGather::Names{input, input + " gradient"}, layer(first - 1).parts, rows, on, comm,
                           profiler);
    if (layer(last).by_inputs())
      stage.scatter.emplace(FeatureGather::Names{output + " gradient", output}, layer(last).parts, rows, on, comm,
                            profiler);
    if (s > 0) stage.dx = Tensor(model.stage(s).in().batch_of(rows), activation_type(on.precision), on.device);
    stages_.push_back(std::move(stage));
  }
  if (plan.split() && plan.layers.back().layout == Layout::kFeature && !plan.sharded_loss)
    logits_.emplace(FeatureGather::Names{"logits", "logits gradient"}, plan.layers.back().parts, rows, on, comm,
                    profiler);
}

const Tensor& BackTape::forward(const Pass& pass, const Tensor& x) {
  const Stream& stream = *pass.stream;
  const Tensor* at = &x;
  for (Stage& stage : stages_) {
    stage.x = stage.gather ? &stage.gather->gather(*at, stream) : at;
    at = &stage.tape.forward(pass, *stage.x);
    if (stage.scatter) at = &stage.scatter->reduce(*at, stream);
  }
  return logits_ ? logits_->gather(*at, stream) : *at;
}

void BackTape::backward(const Pass& pass, const Tensor& dlogits, Tensor* dx, const BackwardHooks& hooks) {
  const Stream& stream = *pass.stream;
  if (stages_.empty()) {
    if (dx) dx->copy_from(dlogits, stream);
    if (hooks.dx_done) hooks.dx_done();
    return;
  }
  const Tensor* gradient = logits_ ? &logits_->take(dlogits, stream) : &dlogits;
  for (size_t s = stages_.size(); s-- > 0;) {
    Stage& stage = stages_[s];
    const bool reduced = stage.gather && stage.gradient == Layout::kPartial;
    if (stage.scatter) gradient = &stage.scatter->gather(*gradient, stream);
    BackwardHooks inner;
    if (hooks.layer_done)
      inner.layer_done = [&, first = model_.first_layer(static_cast<int64_t>(s))](int64_t i) {
        hooks.layer_done(first + i);
      };
    if (reduced) inner.dx_done = [&] { stage.gather->start_reduce(stage.dx, stream); };
    if (s == 0) inner.dx_done = hooks.dx_done;
    stage.tape.backward(pass, *stage.x, *gradient, s > 0 ? &stage.dx : dx, inner);
    if (reduced)
      gradient = &stage.gather->finish_reduce(stream);
    else
      gradient = stage.gather ? &stage.gather->take(stage.dx, stream) : &stage.dx;
  }
}

std::vector<Watched> BackTape::watched() const {
  std::vector<Watched> all;
  for (size_t s = 0; s < stages_.size(); ++s)
    for (Watched& one : stages_[s].tape.watched(model_.first_layer(static_cast<int64_t>(s))))
      all.push_back(std::move(one));
  return all;
}

int64_t BackTape::bytes() const {
  int64_t total = 0;
  for (const Stage& stage : stages_) total += stage.tape.bytes() + (stage.dx.defined() ? stage.dx.bytes() : 0);
  return total;
}

}  // namespace owt

#include "src/plan/rank_model.h"
#include "layers/sampled.h"
#include "src/plan/back_part.h"
#include "src/plan/plan_updates.h"

namespace owt {

namespace {

std::unique_ptr<Layer> without_rows(std::unique_ptr<Layer> layer) {
  for (Param* param : layer->params()) param->part = {0, 0};
  return layer;
}

}  // namespace

RankModel::RankModel(const Model& model, const Plan& plan, int rank) : layers_(std::ssize(plan.layers)) {
  const auto place = static_cast<size_t>(plan.place_of(rank));
  std::vector<std::unique_ptr<Layer>> run;
  Shape run_in = model.input;
  const auto close_run = [&] {
    if (front_ && run.empty()) return;
    auto net = std::make_unique<Net>(std::move(run), run_in);
    run.clear();
    if (!front_)
      front_ = std::move(net);
    else
      stages_.push_back(std::move(net));
  };
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    if (begins_stage(plan, static_cast<int64_t>(i))) {
      close_run();
      run_in = input_of(plan, static_cast<int64_t>(i), place);
      if (at.is_at(plan.place_of(rank))) first_.push_back(static_cast<int64_t>(i));
    }
    if (!at.is_at(plan.place_of(rank))) {
      elsewhere_[static_cast<int64_t>(i)] = without_rows(make_layer(model, i, at.in));
      continue;
    }
    std::optional<Slice> part, inputs;
    if (at.by_inputs())
      inputs = at.inputs[place];
    else if (at.layout == Layout::kFeature)
      part = at.parts[place];
    run.push_back(make_layer(model, i, at.in, part, inputs));
    if (!at.sampled.empty()) {
      const int64_t most = at.sampled[at.parts.empty() ? 0 : place];
      run.back() = make_sampled(std::move(run.back()), make_layer(model, i, at.in, Slice{0, most}));
    }
    const std::vector<Param*> params = run.back()->params();
    if (!params.empty()) params[0]->keeps_grad = !updates_at_once(plan, static_cast<int64_t>(i));
    for (size_t p = 0; p < params.size(); ++p) params[p]->grad_type = gradient_type(plan, static_cast<int64_t>(i), p);
  }
  close_run();
}

Layer& RankModel::layer(int64_t i) const {
  if (const auto found = elsewhere_.find(i); found != elsewhere_.end()) return *found->second;
  if (i < front_->size()) return front_->layer(i);
  size_t s = stages_.size() - 1;
  while (first_[s] > i) --s;
  return stages_[s]->layer(i - first_[s]);
}

std::vector<Param*> RankModel::back_params() const {
  std::vector<Param*> all;
  for (int64_t i = front_->size(); i < layers_; ++i)
    for (Param* param : layer(i).params()) all.push_back(param);
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

}  // namespace owt

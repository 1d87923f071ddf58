#include "src/train/inference.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "src/comm/solo.h"
#include "src/core/conversions.h"
#include "src/train/weights.h"

namespace owt {
namespace {

// The layers of a model up to `last`.
Model up_to(Model model, const std::string& last) {
  model.layers.resize(layer_number(model, last) + 1, model.layers.front());
  return model;
}

// Converts images to the activation type, and copies them to the device.
Tensor brought(const Tensor& images, const Compute& on) {
  const DType type = activation_type(on.precision);
  if (images.dtype() == type) return images.to(on.device);
  OWT_CHECK(type == DType::kBF16 && images.device() == Device::kCpu);
  Tensor rounded(images.shape(), type);
  round_to_bf16(Cpu{}, images, rounded, Stream());
  return rounded.to(on.device);
}

// Warns only of tensors of no layer; tensors of layers that were left out are expected.
void warn_of_unknown(const std::vector<std::string>& unused, const Model& model, const std::string& weights) {
  std::set<std::string> known;
  for (const auto& layer : whole_layers(model))
    for (const Param* param : layer->params()) known.insert(param->name);
  std::vector<std::string> unknown;
  for (const std::string& name : unused)
    if (!known.contains(name)) unknown.push_back(name);
  warn_of_unused(unknown, weights);
}

}  // namespace

Settings for_one_rank(Settings settings) {
  settings.parallel = {};
  settings.parallel.strategy = kPlainDataParallel;
  settings.loss = settings.loss.in_evaluation();
  settings.distill = {};
  return settings;
}

Inference::Inference(const Settings& settings, const std::string& weights, const std::string& last)
    : on_(settings.compute()), weights_(weights), last_(last), stream_(on_.device) {
  on_.canonical_rows = 0;  // there are no gradients
  const Model model = last.empty() ? settings.model : up_to(settings.model, last);
  PlanRequest request = settings.plan_request();
  OWT_CHECK_EQ(request.ranks, 1);
  request.on = on_;
  plan_ = make_plan(model, request);
  last_ = plan_.layers.back().name;
  model_ = std::make_unique<RankModel>(model, plan_, 0);
  model_->allocate(on_);
  const auto alone = make_solo_communicator(on_.device);
  warn_of_unknown(load_weights(weights, *model_, Groups(plan_, *alone)), settings.model, weights);
}

// Without memory for backward, which never runs.
Tape& Inference::tape(int64_t rows) {
  if (rows == tape_rows_) return *tape_;
  tape_.reset();  // frees its memory first
  tape_rows_ = 0;
  tape_.emplace(model_->front(), rows, on_, nullptr, Tape::Scratch::kOwnForForward);
  tape_rows_ = rows;
  return *tape_;
}

Tensor Inference::run(const Tensor& images) {
  const int64_t rows = images.shape().rows();
  OWT_CHECK_EQ(images.shape().row(), in());
  std::vector<int64_t> indexes(static_cast<size_t>(rows));
  std::iota(indexes.begin(), indexes.end(), 0);
  Pass pass;
  pass.mode = Mode::kEval;
  pass.step_rows = rows;
  pass.rows = indexes;
  pass.stream = &stream_;
  const Tensor x = brought(images, on_);
  const Tensor& y = tape(rows).forward(pass, x);
  stream_.synchronize();
  const Tensor out = f32_on_host(y).reshaped(this->out().batch_of(rows));
  if (!all_finite(out))
    fail("the output of layer '", last_, "' holds values that are not finite; look at the weights in ", weights_,
         " and at the data's means and scale");
  return out;
}

}  // namespace owt

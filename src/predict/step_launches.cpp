#include "src/predict/step_launches.h"

#include <algorithm>

#include "layers/loss/softmax_rows.h"
#include "src/parallel/gradient_norms.h"
#include "src/parallel/optimizer.h"
#include "src/plan/order.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_updates.h"
#include "src/predict/op_launches.h"
#include "src/system/check.h"

namespace owt {
namespace {

// The part of the layer's rows that a step uses: below 1 if the loss samples classes (layers/sampled.h).
double share_of_sample(const LayerPlan& layer) {
  if (layer.sampled.empty()) return 1;
  return static_cast<double>(layer.sampled.front()) / static_cast<double>(layer.columns_out());
}

void add_loss(Layers layers, const Plan& plan, std::vector<StepLaunch>& step) {
  const LayerPlan& last = plan.layers.back();
  const double logits = share_of_sample(last) * static_cast<double>(last.out.elements());
  if (!last.sampled.empty())
    step.push_back({.name = "loss", .phase = Phase::kLoss, .kernel = "find_label_columns", .kind = LaunchKind::kLoss});
  const auto size = static_cast<double>(size_of(activation_type(plan.request.on.precision)));
  const double result = sizeof(RowResult);
  step.push_back({.name = "loss",
                  .phase = Phase::kLoss,
                  .kernel = "softmax_rows",
                  .kind = LaunchKind::kLoss,
                  .in_bytes = 2 * size * logits + 2 * result});
  // If the loss is not finite, it searches the watched arrays for bad values.
  for (int64_t left = watched_arrays(layers) - kWatchedPerLaunch; left > 0; left -= kWatchedPerLaunch)
    step.push_back(
        {.name = "loss", .phase = Phase::kLoss, .kernel = "add_results", .kind = LaunchKind::kLoss, .in_bytes = 0});
}

// Adds launches of at most `most` of the items each, which share the work evenly.
void add_evenly(StepLaunch work, int64_t items, int64_t most, std::vector<StepLaunch>& step) {
  if (items == 0) return;
  const int64_t launches = (items + most - 1) / most;
  for (double* of : {&work.flops, &work.in_bytes, &work.weight_bytes}) *of /= static_cast<double>(launches);
  for (int64_t i = 0; i < launches; ++i) step.push_back(work);
}

// Bytes that the update of a parameter that learns reads and writes. kept: its gradient is stored.
double bytes_of_update(const Plan& plan, int64_t layer, size_t param, bool kept) {
  const LayerPlan& at = plan.layer(layer);
  const auto gradient = kept ? static_cast<double>(size_of(gradient_type(plan, layer, param))) : 0;
  const double copy16 = has_copy16(plan, layer, param) ? 2 : 0;
  // Weight and state are read and written. A running average has no state and no copy.
  const double states = 8.0 * plan.request.optimizer_states;
  return share_of_sample(at) * static_cast<double>(at.params[param].elements()) *
         (gradient + 8 + (at.roles[param] == ParamRole::kAverage ? 0 : states + copy16));
}

// Adds the update of the layers [begin, end) of the plan: parameters whose gradients it computes, then others.
void add_update(Layers layers, const Plan& plan, int64_t begin, int64_t end, bool beside,
                std::vector<StepLaunch>& step) {
  StepLaunch products{.name = "weights",
                      .phase = Phase::kUpdate,
                      .kernel = "update_by_products",
                      .kind = LaunchKind::kUpdate,
                      .weight_gradient = true,
                      .beside = beside};
  StepLaunch stored = products;
  stored.kernel = "update_items";
  stored.weight_gradient = false;
  StepLaunch of_rows = stored;
  of_rows.kernel = "update_rows";
  int64_t multiplied = 0, params = 0, sampled = 0;
  for (int64_t i = begin; i < end; ++i) {
    const LayerPlan& at = plan.layer(i);
    for (size_t p = 0; p < at.params.size(); ++p) {
      if (!learns(at.roles[p])) continue;
      if (!at.sampled.empty()) {
        of_rows.weight_bytes += bytes_of_update(plan, i, p, true);
        ++sampled;
        continue;
      }
      const bool kept = layers[static_cast<size_t>(i)]->params()[p]->keeps_grad;
      (kept ? stored : products).weight_bytes += bytes_of_update(plan, i, p, kept);
      ++(kept ? params : multiplied);
      if (kept || p > 0) continue;  // a bias and its weight share a factor
      const auto size = static_cast<double>(size_of(activation_type(plan.request.on.precision)));
      products.flops += at.flops_per_row;
      products.in_bytes += size * static_cast<double>(at.in.elements() + at.out.elements());
    }
  }
  add_evenly(products, multiplied, kProductsPerUpdate, step);
  add_evenly(stored, params, kParamsPerUpdate, step);
  add_evenly(of_rows, sampled, kRowsItemsPerUpdate, step);
}

// Adds the draw of the last layer's classes, and the copies of their rows.
void add_draw(const Plan& plan, std::vector<StepLaunch>& step) {
  const auto index = std::ssize(plan.layers) - 1;
  const LayerPlan& last = plan.layers.back();
  const auto bits = static_cast<double>(last.columns_out()) / 8;
  StepLaunch draw{.name = "sample", .phase = Phase::kForward, .kind = LaunchKind::kPacking};
  for (const auto& [kernel, bytes] :
       {std::pair("choose_labels", 0.0), std::pair("draw_words", 2 * bits),
        std::pair("write_sample", 2 * bits + 4 * static_cast<double>(last.sampled.front()))}) {
    draw.kernel = kernel;
    draw.weight_bytes = bytes;
    step.push_back(draw);
  }
  StepLaunch gather{.layer = index,
                    .name = last.name,
                    .phase = Phase::kForward,
                    .kernel = "gather_units",
                    .kind = LaunchKind::kPacking};
  for (size_t p = 0; p < last.params.size(); ++p)
    for (const int64_t size : has_copy16(plan, index, p) ? std::vector<int64_t>{4, 2} : std::vector<int64_t>{4}) {
      gather.weight_bytes =
          2 * share_of_sample(last) * static_cast<double>(size) * static_cast<double>(last.params[p].elements());
      step.push_back(gather);
    }
}

void add_forward(const Plan& plan, const std::vector<StepLaunch>& forward, std::vector<StepLaunch>& step) {
  const LayerPlan& last = plan.layers.back();
  const auto index = std::ssize(plan.layers) - 1;
  for (const StepLaunch& launch : forward) {
    if (!last.sampled.empty() && launch.layer == index && step.back().layer != index) add_draw(plan, step);
    step.push_back(launch);
  }
  if (last.sampled.empty()) return;
  step.push_back({.layer = index,
                  .name = last.name,
                  .phase = Phase::kForward,
                  .kernel = "clear_columns_without_row",
                  .kind = LaunchKind::kElements,
                  .weight_bytes = 4 * static_cast<double>(last.sampled.front())});
}

// Adds the update of the averages with all weights. A launch counts for the fraction of steps that have it.
void add_averages(const Plan& plan, std::vector<StepLaunch>& step) {
  double elements = 0;
  int64_t params = 0;
  for (const LayerPlan& layer : plan.layers) {
    for (const Shape& param : layer.params) elements += static_cast<double>(param.elements());
    params += static_cast<int64_t>(layer.params.size());
  }
  const int64_t launches = (params + kParamsPerUpdate - 1) / kParamsPerUpdate;
  for (int64_t i = 0; i < launches; ++i)
    step.push_back({.name = "weights",
                    .phase = Phase::kUpdate,
                    .kernel = "ema_items",
                    .kind = LaunchKind::kUpdate,
                    .weight_bytes = 12 * elements / static_cast<double>(launches) / plan.request.ema_every});
}

// Adds the norms that an update waits for: squares in chunks, their sums, and the factors.
void add_norms(const Plan& plan, std::vector<StepLaunch>& step) {
  double bytes = 0;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i)
    for (size_t p = 0; p < plan.layer(i).params.size(); ++p)
      if (plan.layer(i).roles[p] == ParamRole::kTrained)
        bytes += share_of_sample(plan.layer(i)) * static_cast<double>(plan.layer(i).params[p].elements()) *
                 static_cast<double>(size_of(gradient_type(plan, i, p)) + 4 * (plan.request.norm_sums - 1));
  const int64_t items = trained_params(plan) * plan.request.norm_sums;
  const int64_t launches = (items + kParamsPerUpdate - 1) / kParamsPerUpdate;
  const StepLaunch launch{.name = "weights", .phase = Phase::kUpdate, .kind = LaunchKind::kUpdate};
  for (int64_t i = 0; i < launches; ++i) {
    step.push_back(launch);
    step.back().kernel = "square_items";
    step.back().weight_bytes = bytes / static_cast<double>(launches);
  }
  for (const char* kernel : {"add_chunks", "settle_sums"}) {
    step.push_back(launch);
    step.back().kernel = kernel;
  }
}

// Marks kernels of our own that come after another one. Other launches have the name of the call that queues them.
void mark_early(std::vector<StepLaunch>& step) {
  bool own_before[] = {false, false};  // in the streams of the step and of updates beside it
  for (StepLaunch& launch : step) {
    const bool own = !launch.kernel.starts_with("cu");
    launch.early = own && own_before[launch.beside];
    own_before[launch.beside] = own;
  }
}

// The first layer whose parameters are updated beside the backward pass of earlier layers; the number of layers: none.
int64_t beside_from(const Plan& plan) {
  for (const Action& action : training(plan, plan.request.step_rows))
    if (action.kind == Action::Kind::kUpdate && action.beside) return action.layers.begin;
  return static_cast<int64_t>(plan.layers.size());
}

}  // namespace

const char* name_of(LaunchKind kind) {
  const char* const names[] = {"convolutions", "dense products", "pools", "bias, relu, dropout", "norms", "packing",
                               "loss",         "update",         "copies"};
  return names[static_cast<size_t>(kind)];
}

double update_bytes(const Plan& plan, int64_t layer) {
  const LayerPlan& at = plan.layer(layer);
  double bytes = 0;
  for (size_t p = 0; p < at.params.size(); ++p)
    if (learns(at.roles[p])) bytes += bytes_of_update(plan, layer, p, p > 0 || !updates_at_once(plan, layer));
  return bytes;
}

std::vector<StepLaunch> launches_of_step(const Model& model, Plan plan, bool convs_mask_dx) {
  OWT_CHECK_EQ(plan.ranks(), 1);
  plan.request.on.device = Device::kCuda;
  auto owned = whole_layers(model);
  if (const LayerPlan& last = plan.layers.back(); !last.sampled.empty())
    owned.back() = make_layer(model, owned.size() - 1, last.in, Slice{0, last.sampled.front()});
  std::vector<Layer*> layers;
  for (const auto& layer : owned) layers.push_back(layer.get());
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::vector<Param*> params = layers[i]->params();
    const bool at_once = updates_at_once(plan, static_cast<int64_t>(i));
    const bool before_relu = i + 1 < layers.size() && layers[i + 1]->type() == "relu";
    if (!params.empty()) params[0]->keeps_grad = !at_once;
    if (params.size() > 1) params[1]->keeps_grad = !at_once || before_relu;  // CudaDense does the same
    for (size_t p = 0; p < params.size(); ++p) params[p]->grad_type = gradient_type(plan, static_cast<int64_t>(i), p);
  }
  const Launches all =
      launches_of(layers, model.input.batch_of(1), false, {activation_type(plan.request.on.precision), convs_mask_dx});
  const int64_t beside = beside_from(plan), end = static_cast<int64_t>(layers.size());
  std::vector<StepLaunch> step{
      {.name = "step", .phase = Phase::kTransfer, .kernel = "cudaMemcpyAsync", .kind = LaunchKind::kCopy}};
  add_forward(plan, all.forward, step);
  add_loss(layers, plan, step);
  bool updated = beside == end;
  for (const StepLaunch& launch : all.backward) {
    if (!updated && launch.layer < beside) add_update(layers, plan, beside, end, true, step);
    updated = updated || launch.layer < beside;
    step.push_back(launch);
  }
  if (!updated) add_update(layers, plan, beside, end, true, step);
  if (plan.has_norms()) add_norms(plan, step);
  add_update(layers, plan, 0, beside, false, step);
  if (plan.request.ema_every > 0) add_averages(plan, step);
  mark_early(step);
  return step;
}

}  // namespace owt

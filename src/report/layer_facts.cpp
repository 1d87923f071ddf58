#include "src/report/layer_facts.h"

#include <utility>

#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/predict/step_launches.h"

namespace owt {
namespace {

// The least traffic of a layer for a row's activations and their gradients: each is read or written once per pass.
double moved_elements(const LayerPlan& at, Mode mode) {
  const auto in = static_cast<double>(at.in.elements()), out = static_cast<double>(at.out.elements());
  const bool trains = mode == Mode::kTrain;
  if (!at.inner.empty()) {
    double moved = 3 * out * (trains && at.runs_backward() ? 2 : 1);  // combining the branches, and their gradient
    for (const LayerPlan& inner : at.inner) moved += moved_elements(inner, mode);
    return moved;
  }
  if (!trains) return at.type == "dropout" || at.type == "drop_path" ? 0 : in + out;
  if (!at.runs_backward()) return in + out;
  return in + out + out + (at.wants_dx ? in : 0) + (at.learns() ? in : 0);
}

// Weights are read in each product; a stored gradient is written; and the update reads and writes.
double moved_weight_bytes(const Plan& plan, int64_t layer, double each, Mode mode) {
  const LayerPlan& at = plan.layer(layer);
  const double elements = static_cast<double>(at.weight_bytes) / 4;
  if (mode == Mode::kEval) return each * elements;
  const double gradient = updates_at_once(plan, layer) || !at.learns() ? 0 : 4;
  return (each + (at.wants_dx ? each : 0) + gradient) * elements + update_bytes(plan, layer);
}

}  // namespace

std::vector<LayerFacts> layer_facts(const Plan& plan, int64_t step_rows, Mode mode) {
  const int64_t each = size_of(activation_type(plan.request.on.precision));
  std::vector<LayerFacts> all;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    const LayerRows rows = layer_rows(plan, static_cast<int64_t>(i), step_rows);
    const double share = at.share(), worked = static_cast<double>(rows.total);
    LayerFacts facts{.name = at.name, .type = at.type, .out = at.out};
    facts.forward_flops = at.flops_per_row * worked * share;
    if (mode == Mode::kTrain) facts.backward_flops = at.backward_flops_per_row * worked * share;
    if (mode == Mode::kTrain && multiplies_in_update(plan, static_cast<int64_t>(i)))
      facts.backward_flops -= facts.forward_flops;  // the product is in the time of the update
    facts.activation_bytes = each * rows.at_once * at.kept_elements();
    facts.update_in_backward = mode == Mode::kTrain && updates_at_once(plan, static_cast<int64_t>(i));
    facts.weight_bytes = static_cast<int64_t>(share * static_cast<double>(at.weight_bytes));
    const auto size = static_cast<double>(each);
    facts.memory_bytes = share * (size * worked * moved_elements(at, mode) +
                                  moved_weight_bytes(plan, static_cast<int64_t>(i), size, mode));
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace owt

#include "src/plan/back_part.h"

namespace owt {

bool begins_part(const Plan& plan, int64_t layer) {
  return layer == plan.boundary || (layer > 0 && plan.layer(layer - 1).place != plan.layer(layer).place);
}

const LayerPlan* seam_of(const Plan& plan) {
  return plan.split() && plan.layer(plan.boundary).place == kEveryPlace ? &plan.layer(plan.boundary) : nullptr;
}

bool begins_stage(const Plan& plan, int64_t layer) {
  return begins_part(plan, layer) || plan.layer(layer).gather_before ||
         (layer > 0 && plan.layer(layer - 1).by_inputs());
}

Shape input_of(const Plan& plan, int64_t layer, size_t place) {
  const LayerPlan& at = plan.layer(layer);
  if (at.by_inputs()) return {at.inputs[place].size()};
  if (layer == plan.boundary || at.gather_before) return at.in;
  return plan.layer(layer - 1).out_of(place);
}

Layout gradient_layout(const Plan& plan, int64_t first) {
  for (int64_t i = first; i < std::ssize(plan.layers); ++i) {
    const LayerPlan& at = plan.layer(i);
    if (i > first && at.gather_before) break;
    if (at.layout == Layout::kFeature) return Layout::kPartial;
  }
  return Layout::kReplicated;
}

bool wants_input_gradient(const Plan& plan, int place) {
  const Slice here = plan.back_layers(place);
  return here.size() > 0 && plan.layer(here.begin).wants_dx;
}

}  // namespace owt

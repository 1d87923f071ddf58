#include "src/train/layer_facts.h"

#include <utility>

#include "src/parallel/memory_need.h"

namespace owt {
namespace {

// The share of a layer's work that rank 0 does.
double share_of_rank_0(const LayerPlan& layer) {
  if (layer.by_inputs())
    return static_cast<double>(layer.inputs.front().size()) / static_cast<double>(layer.in.elements());
  if (layer.layout != Layout::kFeature) return 1;
  return static_cast<double>(layer.parts.front().size()) / static_cast<double>(layer.out.elements());
}

}  // namespace

std::vector<LayerFacts> layer_facts(const Plan& plan, int64_t step_rows) {
  const int64_t each = size_of(activation_type(plan.request.on.precision));
  std::vector<LayerFacts> all;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    const Plan::LayerRows rows = plan.layer_rows(static_cast<int64_t>(i), step_rows);
    const double share = share_of_rank_0(at), worked = static_cast<double>(rows.total);
    LayerFacts facts{at.name, at.type, at.out, 0, 0, 0, 0};
    facts.forward_flops = at.flops_per_row * worked * share;
    facts.backward_flops = at.backward_flops_per_row * worked * share;
    facts.activation_bytes = each * rows.at_once * kept_columns(at);
    facts.weight_bytes = static_cast<int64_t>(share * static_cast<double>(at.weight_bytes));
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace owt

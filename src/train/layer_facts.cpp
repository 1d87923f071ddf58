#include "src/train/layer_facts.h"

#include <utility>

namespace owt {
std::vector<LayerFacts> layer_facts(const Plan& plan, int64_t step_rows, Mode mode) {
  const int64_t each = size_of(activation_type(plan.request.on.precision));
  std::vector<LayerFacts> all;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    const Plan::LayerRows rows = plan.layer_rows(static_cast<int64_t>(i), step_rows);
    const double share = at.share(), worked = static_cast<double>(rows.total);
    LayerFacts facts{at.name, at.type, at.out, 0, 0, 0, 0};
    facts.forward_flops = at.flops_per_row * worked * share;
    if (mode == Mode::kTrain) facts.backward_flops = at.backward_flops_per_row * worked * share;
    facts.activation_bytes = each * rows.at_once * at.kept_columns();
    facts.weight_bytes = static_cast<int64_t>(share * static_cast<double>(at.weight_bytes));
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace owt

#include "src/plan/wire_bytes.h"

#include <algorithm>
#include <cmath>

#include "src/plan/plan_updates.h"

namespace owt {

int64_t gradient_size(const Plan& plan) { return plan.request.half_wire && plan.ranks() > 1 ? 2 : 4; }

int64_t activation_bytes(const Plan& plan, int64_t features) {
  return features * std::min(gradient_size(plan), size_of(activation_type(plan.request.on.precision)));
}

bool rounds_gradients(const Plan& plan) { return gradient_size(plan) != 4 || filters_pushes(plan); }

int64_t wire_bytes(const Plan& plan, const Bucket& bucket) {
  if (!filters_pushes(plan) || !bucket.trained) return bucket.elements * (bucket.trained ? gradient_size(plan) : 4);
  const FilterSettings& filters = plan.request.push_filters;
  const int64_t servers = updating_ranks(plan), each = bucket.elements / servers;
  const auto sent = static_cast<int64_t>(std::ceil(filters.usual_share() * static_cast<double>(each)));
  return servers * filters.message_bytes(each, sent, trained_tensors(plan, bucket));
}

int64_t trained_tensors(const Plan& plan, const Bucket& bucket) {
  int64_t tensors = 0;
  for (const int64_t i : bucket.layers) {
    const std::vector<ParamRole>& roles = plan.layer(i).roles;
    tensors += std::count(roles.begin(), roles.end(), ParamRole::kTrained);
  }
  return tensors;
}

int64_t averaged_elements(const Plan& plan, const Bucket& bucket) {
  int64_t elements = bucket.elements;
  for (const int64_t i : bucket.layers) {
    const LayerPlan& at = plan.layer(i);
    for (size_t p = 0; p < at.params.size(); ++p)
      if (bucket.trained && at.roles[p] == ParamRole::kTrained)
        elements += plan.request.optimizer_states * aligned_elements(at.params[p].elements());
  }
  return elements;
}

}  // namespace owt

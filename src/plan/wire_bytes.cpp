#include "src/plan/wire_bytes.h"

#include <algorithm>

#include "src/core/canonical.h"
#include "src/plan/plan_updates.h"

namespace owt {

namespace {

bool rounds_transport(const Plan& plan) { return plan.request.bf16_transport && plan.ranks() > 1; }

}  // namespace

int64_t gradient_size(const Plan& plan) {
  return rounds_transport(plan) ? size_of(DType::kBF16) : size_of(weight_sum_type(plan.request.on));
}

int64_t activation_bytes(const Plan& plan, int64_t features) {
  return features * std::min(gradient_size(plan), size_of(activation_type(plan.request.on.precision)));
}

int64_t input_sum_bytes(const Plan& plan, int64_t activation_bytes) {
  const Compute& on = plan.request.on;
  return activation_bytes * size_of(input_sum_type(on)) / size_of(activation_type(on.precision));
}

bool rounds_gradients(const Plan& plan) { return rounds_transport(plan) || filters_gradients(plan); }

int64_t wire_bytes(const Plan& plan, const Bucket& bucket) {
  if (!bucket.trained) return bucket.elements * size_of(DType::kF32);
  return filters_gradients(plan) ? filtered_bytes(plan, bucket) : bucket.elements * gradient_size(plan);
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

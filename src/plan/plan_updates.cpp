#include "src/plan/plan_updates.h"

#include <algorithm>

#include "src/core/canonical.h"
#include "src/plan/plan_rows.h"

namespace owt {

int updating_ranks(const Plan& plan) { return plan.updaters > 0 ? plan.updaters : plan.ranks(); }

bool updates_share(const Plan& plan, int rank) { return rank >= plan.ranks() - updating_ranks(plan); }

bool shares_evenly(const Plan& plan) { return plan.shares_update() && plan.updates() != Updates::kFirst; }

Slice even_share(const Plan& plan, const Bucket& bucket, int rank) {
  if (!updates_share(plan, rank)) return {};
  const int updating = updating_ranks(plan);
  const int64_t each = bucket.elements / updating, number = rank - (plan.ranks() - updating);
  return {number * each, (number + 1) * each};
}

Slice updated_share(const Plan& plan, const Bucket& bucket, int rank) {
  if (shares_evenly(plan)) return even_share(plan, bucket, rank);
  const bool nothing = plan.updates() == Updates::kFirst && rank > 0;
  return {nothing ? bucket.elements : 0, bucket.elements};
}

// The part of the elements [first, first + count) of a bucket that is in the share, relative to `first`.
Slice share_of(const Slice& share, int64_t first, int64_t count) {
  const int64_t begin = std::clamp<int64_t>(share.begin - first, 0, count);
  return {begin, std::clamp<int64_t>(share.end - first, begin, count)};
}

std::vector<Slice> updated_parts(const Plan& plan, int64_t layer, size_t param) {
  for (const Bucket& bucket : plan.buckets) {
    int64_t first = 0;
    for (const int64_t i : bucket.layers) {
      const LayerPlan& at = plan.layer(i);
      const std::vector<Shape>& params = at.params;
      for (size_t p = 0; p < params.size(); ++p) {
        if (!bucket.holds(at.roles[p])) continue;
        if (i != layer || p != param) {
          first += aligned_elements(params[p].elements());
          continue;
        }
        std::vector<Slice> parts;
        for (int r = 0; r < plan.ranks(); ++r)
          parts.push_back(share_of(updated_share(plan, bucket, r), first, params[p].elements()));
        return parts;
      }
    }
  }
  fail("layer ", layer, " has no parameter ", param, " that is updated in shares");
}

int64_t matrix_block(const Plan& plan, int64_t layer, size_t param) {
  const LayerPlan& at = plan.layer(layer);
  if (!at.matrices[param]) return 0;
  if (plan.updates() == Updates::kShares) {
    int64_t longest = 0;
    for (const Slice& part : updated_parts(plan, layer, param)) longest = std::max(longest, part.size());
    return longest + 1;
  }
  return at.layout == Layout::kFeature ? at.most_elements(at.params[param]) + 1 : 0;
}

Group matrix_group(const Plan& plan) { return plan.updates() == Updates::kShares ? Group::kWorld : Group::kModel; }

int ranks_per_update(const Plan& plan) { return plan.shares_update() ? plan.ranks() : 1; }

// Running averages may have a bucket of their own; a layer's update is counted for the other bucket.
double update_fraction(const Plan& plan, int bucket) {
  if (!plan.shares_update()) return 1;
  if (!plan.buckets[static_cast<size_t>(bucket)].trained) return 0;
  return shares_evenly(plan) ? 1.0 / updating_ranks(plan) : 1;
}

int back_updates(const Plan& plan) {
  const bool every_round = plan.split() && plan.request.dense_update == DenseUpdate::kRound;
  return every_round ? rows_of(plan, plan.request.step_rows).count_rounds() : 1;
}

bool are_together(const Plan& plan, int rank, int other, Group group) {
  if (group == Group::kWorld) return true;
  if (group == Group::kModel) return rank / plan.model_ranks == other / plan.model_ranks;
  return plan.place_of(rank) == plan.place_of(other);
}

StepKind kind_of(const Plan& plan, int64_t step) {
  if (!plan.averages()) return StepKind::kSynchronous;
  return (step + 1) % plan.request.average_every == 0 ? StepKind::kAveraging : StepKind::kLocal;
}

int local_period(const Plan& plan) { return plan.averages() ? plan.request.average_every : 1; }

// Averages over time are updated only in steps after which all ranks have the same weights.
int period_of(const Plan& plan) {
  const int each = local_period(plan);
  return (std::max(1, plan.request.ema_every) + each - 1) / each * each;
}

bool sums_gradients(const Plan& plan, int64_t layer) {
  const PlanRequest& request = plan.request;
  if (layer < plan.boundary)
    return (plan.synchronizes() && plan.ranks_of(plan.front_group()) > 1) || plan.copies_gradients() ||
           request.slices > 1;
  const bool every_step = request.dense_update == DenseUpdate::kStep;
  return plan.replicas() > 1 || (every_step && rows_of(plan, request.step_rows).count_rounds() > 1);
}

bool updates_at_once(const Plan& plan, int64_t layer) {
  const PlanRequest& request = plan.request;
  const LayerPlan& at = plan.layer(layer);
  if (request.keeps_gradients || plan.has_norms() || !at.can_update_at_once || !at.learns()) return false;
  if (request.on.canonical()) return false;  // its op stores sums
  if (at.matrices.front()) return false;
  if (sums_gradients(plan, layer)) return false;
  if (request.on.device == Device::kCpu) return !stashes_weights(plan);  // the update would change the stash
  // A stage of a pipeline may receive the next gradient in the memory of a factor.
  return request.on.precision == Precision::kBf16 && plan.places() == 1 &&
         layer_rows(plan, layer, request.step_rows).at_once <= kMostRowsAtOnce;
}

bool multiplies_in_update(const Plan& plan, int64_t layer) {
  return plan.request.on.device == Device::kCuda && updates_at_once(plan, layer);
}

DType gradient_type(const Plan& plan, int64_t layer, size_t param) {
  const LayerPlan& at = plan.layer(layer);
  const Compute& on = plan.request.on;
  const bool of_products = at.roles[param] == ParamRole::kTrained && at.params[param].rank() > 1;
  const bool halves = on.device == Device::kCuda && on.precision == Precision::kBf16;
  const bool bf16 = halves && of_products && !sums_gradients(plan, layer);
  return bf16 ? DType::kBF16 : weight_sum_type(on);
}

bool has_copy16(const Plan& plan, int64_t layer, size_t param) {
  Param like;
  like.cpu_reads_copy16 = plan.layer(layer).cpu_reads_copy16[param];
  return like.has_copy16(plan.request.on);
}

bool has_copies16(const Plan& plan, const Bucket& bucket) {
  for (const int64_t i : bucket.layers)
    for (size_t p = 0; p < plan.layer(i).params.size(); ++p)
      if (bucket.holds(plan.layer(i).roles[p]) && has_copy16(plan, i, p)) return true;
  return false;
}

}  // namespace owt

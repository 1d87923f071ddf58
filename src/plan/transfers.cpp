#include "src/plan/transfers.h"

#include "src/plan/transfer_list.h"

namespace owt {
namespace {

void list_all(Plan& plan, int first) {
  TransferList list(plan, first);
  list.step_sums();
  acting_strategy(plan).transfers(list);
  if (plan.of_step.result == kNoTransfer) list.result();
}

// Whether the statistics that ranks need of each other's logits are smaller than the logits.
bool sends_less_sharded(const Plan& plan) {
  const LayerPlan& last = plan.layers.back();
  const bool features = last.layout == Layout::kFeature && last.pixels_out() == 1;
  if (plan.request.on.canonical()) return false;  // the sums over classes would depend on the parts
  if (plan.request.loss.targets.classes > 0 || plan.request.whole_logits) return false;
  if (features && plan.request.loss.samples()) return true;  // no rank knows the columns of the others
  return features && loss_stats(plan.request.loss) * 4 < activation_bytes(plan, last.parts.front().size());
}

}  // namespace

void list_transfers(Plan& plan) {
  plan.sharded_loss = sends_less_sharded(plan);
  list_all(plan, rows_of(plan, plan.request.step_rows).busiest_group());
}

std::vector<Transfer> transfers_of(Plan plan, int rank) {
  plan.transfers.clear();
  plan.of_step = {};
  for (LayerPlan& layer : plan.layers) layer.transfers = {};
  list_all(plan, rank / plan.model_ranks * plan.model_ranks);
  return plan.transfers;
}

}  // namespace owt

#include "src/predict/mirror_need.h"

#include <algorithm>

#include "src/plan/plan_updates.h"
#include "src/system/log.h"

namespace owt {
namespace {

// Elements of a parameter on the rank at this place of its model group.
int64_t elements_at(const LayerPlan& at, const Shape& param, int place) {
  if (!at.is_at(place)) return 0;
  if (at.layout != Layout::kFeature) return param.elements();
  const auto p = static_cast<size_t>(place);
  if (!at.by_inputs()) return param.with_rows(at.parts[p].size()).elements();
  if (param.rank() == 1) return place == 0 ? param.elements() : 0;  // the bias is not split
  return param.rows() * at.inputs[p].size();
}

std::string mega_bytes(double bytes) { return format("{:.{}f} MB", bytes / 1e6, bytes < 100'000 ? 4 : 2); }

}  // namespace

std::vector<MirrorNeed> mirror_needs(const Plan& plan) {
  const auto ranks = static_cast<size_t>(plan.ranks());
  std::vector<int64_t> all(ranks), only(ranks);  // bytes of a rank; of these, what no other rank has
  const int64_t states = plan.request.optimizer_states, values = plan.request.ema_every > 0 ? 2 : 1;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i) {
    const LayerPlan& at = plan.layer(i);
    const bool in_parts = at.layout == Layout::kFeature || at.place != kEveryPlace;
    const bool alone = in_parts && plan.replicas() == 1;
    for (size_t p = 0; p < at.params.size(); ++p) {
      const bool trained = at.roles[p] == ParamRole::kTrained, in_shares = trained && ranks_per_update(plan) > 1;
      const std::vector<Slice> shares = in_shares ? updated_parts(plan, i, p) : std::vector<Slice>();
      for (size_t rank = 0; rank < ranks; ++rank) {
        const int64_t elements = elements_at(at, at.params[p], plan.place_of(static_cast<int>(rank)));
        const int64_t value = 4 * values * elements;
        const int64_t state = trained ? 4 * states * (in_shares ? shares[rank].size() : elements) : 0;
        all[rank] += value + state;
        only[rank] += (alone ? value : 0) + (alone || in_shares ? state : 0);
      }
    }
  }
  std::vector<MirrorNeed> needs;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int64_t of_previous = only[(rank + ranks - 1) % ranks];
    needs.push_back({only[rank], 2 * (all[rank] + of_previous)});
  }
  return needs;
}

std::string mirror_text(const Plan& plan) {
  MirrorNeed most;
  for (const MirrorNeed& need : mirror_needs(plan)) {
    most.sent_bytes = std::max(most.sent_bytes, need.sent_bytes);
    most.held_bytes = std::max(most.held_bytes, need.held_bytes);
  }
  const auto sent = static_cast<double>(most.sent_bytes);
  const auto every = static_cast<double>(plan.request.mirror_every);
  return concat("every ", plan.request.mirror_every == 1 ? "step" : concat(plan.request.mirror_every, " steps"),
                " a worker sends ",
                most.sent_bytes == 0 ? "nothing"
                                     : concat("at most ", mega_bytes(sent), " (", mega_bytes(sent / every), " a step)"),
                ", and its copies take ", mega_bytes(static_cast<double>(most.held_bytes)), " of host memory");
}

}  // namespace owt

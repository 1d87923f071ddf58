#include "src/parallel/rank_sums.h"
#include "src/plan/plan_bytes.h"

namespace owt {

RankSums::RankSums(const Plan& plan, int place, Communicator& group, Profiler* profiler)
    : plan_(plan),
      place_(place),
      group_(group),
      profiler_(profiler),
      nothing_({most_step_sums(plan)}, DType::kF64, plan.request.on.device) {}

void RankSums::begin(const LayerPlan& layer, Phase phase, bool has_rows, const Stream& stream) {
  transfer_ = layer.transfers.sums;
  if (has_rows) return;
  for (const int64_t count : layer.step_sums(phase, place_)) {
    Tensor zeros = nothing_.part(0, {count});
    zeros.zero(stream);
    add_up(zeros, stream);
  }
}

void RankSums::add_up(Tensor& sums, const Stream& stream) {
  const Profiler::Scope scope(profiler_, plan_.transfer(transfer_).name, Phase::kTransfer);
  stream.wait(group_.all_reduce(sums, stream.record()));
}

}  // namespace owt

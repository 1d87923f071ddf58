#include "src/parallel/spread_weights.h"
#include "src/comm/on_host.h"

namespace owt {
namespace {

void spread(const std::vector<Param*>& params, Communicator& comm, Device device) {
  if (comm.ranks() == 1) return;
  for (Param* param : params)
    for (const Slice& rows : pieces_of(param->shape(), {0, param->shape().rows()})) {
      const Tensor mine = param->value.rows(rows.begin, rows.end);
      if (mine.elements() == 0) continue;
      Tensor piece = comm.rank() == 0 ? mine.to(Device::kCpu) : Tensor(mine.shape());
      on_host::broadcast(comm, piece, 0, device);
      if (comm.rank() != 0) param->set_rows(rows.begin, piece);
    }
}

}  // namespace

void spread_weights(RankModel& model, const Groups& groups) {
  spread(model.front_params(), groups.world(), groups.device());
  spread(model.back_params(), groups.replicas(), groups.device());
}

}  // namespace owt

#include "src/parallel/spread_weights.h"
#include "src/comm/on_host.h"

namespace owt {
namespace {

void spread(const std::vector<Param*>& params, Communicator& comm, Device device) {
  if (comm.ranks() == 1) return;
  for (Param* param : params) {
    if (param->shape().elements() == 0) continue;
    Tensor first = comm.rank() == 0 ? param->value.to(Device::kCpu) : Tensor(param->shape());
    on_host::broadcast(comm, first, 0, device);
    if (comm.rank() != 0) param->set_value(first);
  }
}

}  // namespace

void spread_weights(RankModel& model, const Groups& groups) {
  spread(model.front_params(), groups.world(), groups.device());
  spread(model.back_params(), groups.replicas(), groups.device());
}

}  // namespace owt

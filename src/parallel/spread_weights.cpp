#include "src/parallel/spread_weights.h"

namespace owt {
namespace {

void spread(const std::vector<Param*>& params, Communicator& comm, Device device) {
  if (comm.ranks() == 1) return;
  for (Param* param : params) {
    {
      Tensor first(param->shape(), DType::kF32, device);
      comm.broadcast(param->value.to(device), first, 0, {}).wait();
      if (comm.rank() != 0) param->set_value(first.to(Device::kCpu));
    }
    comm.meet();
  }
}

}  // namespace

void spread_weights(RankModel& model, const Groups& groups) {
  spread(model.front_params(), groups.world(), groups.device());
  spread(model.back_params(), groups.replicas(), groups.device());
}

}  // namespace owt

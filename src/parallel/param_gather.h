// A parameter-shaped tensor, split or not, brought together for a file.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "layers/param.h"
#include "src/comm/communicator.h"
#include "src/parallel/plan.h"

namespace owt {

// Collective over the model group `comm`. `mine` belongs to `param` of this layer and has its shape(). On rank 0 `write` gets the rows of the whole
// tensor in file order, in one piece or several; the other ranks only send. The host waits for it.
void gather_parameter(const LayerPlan& layer, const Param& param, const Tensor& mine, Communicator& comm,
                      const std::function<void(std::span<const float>)>& write);

// Collective. Rank r brings the elements parts[r] of a tensor with the parameter's shape(), in one dimension; rank 0 gets
// it on the host, the others an undefined one. The host waits for it.
Tensor gather_shares(const std::vector<Slice>& parts, const Param& param, const Tensor& mine, Communicator& comm);

}  // namespace owt

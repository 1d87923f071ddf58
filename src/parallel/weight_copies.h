// Weight stashes for pipeline tasks that do not run with the current weights: earlier versions, or predicted weights.
// An active stash is the parameters' value until the current weights become active again.
//
// The prediction for s more updates is w + s v, as if the coming gradients did not change the velocity v (optimizer.h),
// which includes the learning rate and the sign.
// Source: Chen, Yang and Cheng 2018, "Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU
// Platform", section 3.3: w - s * lr * v with the velocity of the last update.
#pragma once

#include <span>
#include <vector>

#include "layers/base/param.h"
#include "src/core/stream.h"
#include "src/parallel/optimizer.h"

namespace owt {

class WeightCopies {
 public:
  // Allocates `copies` stashes of these parameters, which must be trained and have memory. The optimizer has their
  // velocities. Parameters and optimizer must outlive this. The stashes have no values yet.
  WeightCopies(std::span<Param* const> params, int copies, Optimizer& optimizer);

  // Queues a copy of the current weights into the stash or, with ahead > 0, of the weights predicted after `ahead`
  // updates. The current weights must be active.
  void make(int copy, int ahead, const Stream& stream);
  // Makes the stash active: the parameters get its values. kNewestWeights makes the current weights active, which must
  // happen before another stash is taken. Increments versions.
  void take(int copy);
  // Queues the poisoning of a stash that is not active (src/core/poison.h).
  void forget(int copy, const Stream& stream) const;

 private:
  struct Values {
    Tensor value, copy16;  // one parameter
  };
  void swap_with(int copy);
  void make(Param& param, Values& values, int ahead, const Stream& stream);

  std::vector<Param*> params_;
  std::vector<std::vector<Values>> copies_;  // indexes: stash, parameter
  Optimizer& optimizer_;
  int taken_;
};

// predicted = value + updates * velocity; all are f32 tensors of the same size on the device of the tag. Queued on the
// stream.
void predict(Cpu, const Tensor& value, const Tensor& velocity, int updates, Tensor& predicted, const Stream& stream);
void predict(Cuda, const Tensor& value, const Tensor& velocity, int updates, Tensor& predicted, const Stream& stream);

}  // namespace owt

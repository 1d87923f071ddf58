// Copies of weights for the tasks of a pipeline that run with others than the newest: older versions, or what the
// weights are predicted to become. A copy that is taken is the parameters' value until the newest weights come back.
//
// The prediction for after s more updates is w + s v, as if the coming gradients changed nothing of the velocity v
// (optimizer.h), in which the learning rate and the sign are.
// Source: Chen, Yang and Cheng 2018, "Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU
// Platform", section 3.3: w - s * lr * v with the velocity of the last update.
#pragma once

#include <span>
#include <vector>

#include "layers/param.h"
#include "src/core/stream.h"
#include "src/train/optimizer.h"

namespace owt {

class WeightCopies {
 public:
  // So many copies of these, all trained and with memory; their velocities are those of the optimizer. Parameters and
  // optimizer must outlive this. The copies have no values yet.
  WeightCopies(std::span<Param* const> params, int copies, Optimizer& optimizer);

  // Queues that the copy becomes the newest weights, which must be in place, or what they are predicted to be after so
  // many more updates.
  void make(int copy, int ahead, const Stream& stream);
  // From now on the parameters have the values of the copy; kNewestWeights: the newest ones, which must be back before
  // the next copy is taken. Raises versions.
  void take(int copy);
  // Queues that the copy, which is not taken, has no values any more (src/core/poison.h).
  void forget(int copy, const Stream& stream) const;

 private:
  struct Values {
    Tensor value, copy16;  // of a parameter
  };
  void swap_with(int copy);
  void make(Param& param, Values& values, int ahead, const Stream& stream);

  std::vector<Param*> params_;
  std::vector<std::vector<Values>> copies_;  // of each, by parameter
  Optimizer& optimizer_;
  int taken_;
};

// predicted = value + updates * velocity, all f32 and of as many elements on the device of the tag; queued on the
// stream.
void predict(Cpu, const Tensor& value, const Tensor& velocity, int updates, Tensor& predicted, const Stream& stream);
void predict(Cuda, const Tensor& value, const Tensor& velocity, int updates, Tensor& predicted, const Stream& stream);

}  // namespace owt

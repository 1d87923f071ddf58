// Averages the copies of weights that ranks have updated each by itself (local SGD): values, running averages and
// the optimizer's states of a bucket lie side by side and travel together, times the share of the rows that the rank
// learnt from. Averaged after every step that gives under sgd what a sum of gradients does, to rounding, since all of
// them are linear in the gradient.
// Sources: Stich 2019, "Local SGD Converges Fast and Communicates Little"; of the velocities: Yu, Jin and Yang 2019,
// "On the Linear Speedup Analysis of Communication Efficient Momentum SGD".
#pragma once

#include <unordered_map>
#include <vector>

#include "src/parallel/weight_sync.h"

namespace owt {

class WeightAverage {
 public:
  // Lays values and states of every bucket of the plan side by side in memory (the parameters' values become views
  // of it; those that are there already are kept). comm: of all ranks; it must outlive this.
  WeightAverage(const Plan& plan, const WeightSync::LayerOf& layer_of, Communicator& comm);

  // Where the states of a trained parameter lie: zero, in the parameter's shape; none of a parameter that is not
  // averaged.
  std::vector<Tensor> states(const Param& param) const;

  // Behind what updates the bucket. share: of this rank, f64 on the device; those of all ranks add up to 1.
  void start(int bucket, const Tensor& share, const Stream& stream);
  // Until the averages are there. Renews copies in bf16, and raises versions.
  void wait(int bucket, const Stream& stream);

 private:
  struct Group {
    Tensor all;  // the values one after the other, then the states
    std::vector<Param*> params;
    Event arrived;
  };

  Group group_of(const Plan& plan, const Bucket& bucket, const WeightSync::LayerOf& layer_of);
  Group& group(int bucket) { return groups_[static_cast<size_t>(bucket)]; }

  Communicator& comm_;
  std::vector<Group> groups_;
  std::unordered_map<const Param*, std::vector<Tensor>> states_;
};

// values (f32) times a factor (one f64), both on the device of the tag; queued on the stream. The product is rounded
// once.
void scale(Cpu, Tensor& values, const Tensor& factor, const Stream& stream);
void scale(Cuda, Tensor& values, const Tensor& factor, const Stream& stream);

}  // namespace owt

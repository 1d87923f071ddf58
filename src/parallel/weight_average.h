// Averages the weights that ranks have updated independently (local SGD). Values, running averages and optimizer states
// of a bucket lie side by side and travel together. Each rank scales them with its share of the rows first. Under sgd,
// averaging after every step gives what a sum of gradients gives, up to rounding, since all of these are linear in the
// gradient.
// Sources: Stich 2019, "Local SGD Converges Fast and Communicates Little"; for the velocities: Yu, Jin and Yang 2019,
// "On the Linear Speedup Analysis of Communication Efficient Momentum SGD".
#pragma once

#include <unordered_map>
#include <vector>

#include "src/parallel/weight_sync.h"

namespace owt {

class WeightAverage {
 public:
  // Lays values and states of every bucket of the plan side by side in memory. The parameters' values become views of
  // it; existing values are kept. comm: of all ranks; it must outlive this.
  WeightAverage(const Plan& plan, const WeightSync::LayerOf& layer_of, Communicator& comm);

  // The memory for the optimizer states of a trained parameter: zeros in the parameter's shape. Empty if the parameter
  // is not averaged.
  std::vector<Tensor> states(const Param& param) const;

  // Counts the rows of a local step: of this rank, of all ranks.
  void count_rows(int64_t own, int64_t all) { own_rows_ += own, all_rows_ += all; }
  bool is_due() const { return all_rows_ > 0; }  // there were local steps since the last average
  // The weight of this rank in the average, by the rows counted since the last one.
  double take_share();

  // Call after the updates of the bucket. share: of this rank, f64 on the device; the shares of all ranks sum to 1.
  void start(int bucket, const Tensor& share, const Stream& stream);
  // Waits for the averages. Renews bf16 copies and increments versions.
  void wait(int bucket, const Stream& stream);
  void run(const Tensor& share, const Stream& stream);  // starts and waits, for all buckets

 private:
  struct Group {
    Tensor all;  // all values, then all states
    std::vector<Param*> params;
    Event arrived;
  };

  Group group_of(const Plan& plan, const Bucket& bucket, const WeightSync::LayerOf& layer_of);
  Group& group(int bucket) { return groups_[static_cast<size_t>(bucket)]; }

  Communicator& comm_;
  std::vector<Group> groups_;
  int64_t own_rows_ = 0, all_rows_ = 0;
  std::unordered_map<const Param*, std::vector<Tensor>> states_;
};

// Multiplies f32 values by a factor (one f64), both on the device of the tag, queued on the stream. The product is
// rounded once.
void scale(Cpu, Tensor& values, const Tensor& factor, const Stream& stream);
void scale(Cuda, Tensor& values, const Tensor& factor, const Stream& stream);

}  // namespace owt

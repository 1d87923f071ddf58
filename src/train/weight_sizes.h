// The size of weights and of their updates. Their ratio shows best whether a layer's learning rate fits (Krizhevsky's
// cuda-convnet prints it at every test).
//
// For every trained parameter, over a sample of its elements:
//   mean    mean of |w|, after the last update
//   change  mean of |w - w'|, w' before that update
// The sample consists of elements of the whole tensor, in memory order, at multiples of a stride: all elements of up to
// 4096, else about 4096. The stride and the row length have no common factor, so all columns are sampled. Each rank
// counts the elements that it has; the sums of all ranks are divided by their counts. The means are therefore equal for
// every number of ranks, up to rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers/base/param.h"
#include "src/comm/communicator.h"
#include "src/core/stream.h"

namespace owt {

constexpr int64_t kSampledElements = 4096;

struct WeightSize {
  std::string name;
  double mean = 0;
  std::optional<double> change{};  // unset: no update since the process began
};

class WeightSizes {
 public:
  // params: must have memory and outlive this; the same list on all ranks.
  explicit WeightSizes(const std::vector<Param*>& params);

  // Call before an update. Runs after the work that is queued; the host waits.
  void note(const Stream& stream);
  // Call after the update. Collective.
  std::vector<WeightSize> measure(Communicator& comm, const Stream& stream);

 private:
  struct Sample {
    const Param* param;
    std::vector<int64_t> elements;  // indexes in this rank's part
    std::vector<float> before{};
  };
  static std::vector<float> values_of(const Sample& sample, const Stream& stream);

  std::vector<Sample> samples_;
  bool noted_ = false;
};

// The distance of two elements of a sample.
int64_t sample_stride(const Shape& whole);

}  // namespace owt

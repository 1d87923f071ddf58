// How large weights are and how much an update changes them: what tells best whether a layer's learning rate fits
// (Krizhevsky's cuda-convnet prints it at every test).
//
// Of every parameter that is trained, over a sample of its elements:
//   mean    of |w|, after the last update
//   change  of |w - w'|, w' before that update
// The sample are the elements of the whole tensor, in memory order, whose number is a multiple of a stride: all where
// there are up to 4096, else about so many; the stride has no factor in common with the length of a row, so that all
// columns are in it. A rank counts those it has, and all ranks' sums are added and divided by how many they counted, so
// that the means are the same for every number of ranks, to rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers/param.h"
#include "src/comm/communicator.h"
#include "src/core/stream.h"

namespace owt {

constexpr int64_t kSampledElements = 4096;

struct WeightSize {
  std::string name;
  double mean = 0;
  std::optional<double> change{};  // none: there was no update since the process began
};

class WeightSizes {
 public:
  // Of parameters with memory, which must outlive this; the same ones, in the same order, on all ranks.
  explicit WeightSizes(const std::vector<Param*>& params);

  // The weights are about to be updated. Behind the work that is queued; the host waits.
  void note(const Stream& stream);
  // Collective, behind the update.
  std::vector<WeightSize> measure(Communicator& comm, const Stream& stream);

 private:
  struct Sample {
    const Param* param;
    std::vector<int64_t> elements;  // of the part that is here
    std::vector<float> before{};
  };
  static std::vector<float> values_of(const Sample& sample, const Stream& stream);

  std::vector<Sample> samples_;
  bool noted_ = false;
};

// How far apart the elements of a sample are.
int64_t sample_stride(const Shape& whole);

}  // namespace owt

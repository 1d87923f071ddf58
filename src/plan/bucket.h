// Gradients that are sent together.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/base/param.h"

namespace owt {

// Gradients that travel together: the parameters of these layers, the last layer first. Each parameter starts at a
// multiple of 8 elements, the alignment that kernels need in f32 and in bf16.
struct Bucket {
  std::vector<int64_t> layers{};
  int64_t elements = 0;  // padded, where updates are sharded, so that all shards have the same aligned size
  // Which parameters of its layers it holds. If gradients are rounded for transport, running averages have buckets of
  // their own, which are not rounded.
  bool trained = true, averages = true;

  bool holds(ParamRole role) const {
    return role == ParamRole::kAverage ? averages : role == ParamRole::kTrained && trained;
  }
};
constexpr int64_t kAlignedElements = 8;
inline int64_t aligned_elements(int64_t elements, int64_t multiple = kAlignedElements) {
  return (elements + multiple - 1) / multiple * multiple;
}

}  // namespace owt

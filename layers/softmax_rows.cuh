// Code shared by the kernels of the softmax losses: a block of whole warps works on a row. For .cu files.
#pragma once

#include <limits>

#include "layers/softmax_rows.h"
#include "src/core/launch.cuh"

namespace owt {

constexpr unsigned kWarp = 32, kAllLanes = 0xffffffff, kMaxWarps = 32;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }  // NaN loses
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};
struct Sum {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};

// Combines the values of all threads of a block; all threads get the result.
template <class V, class Combine>
__device__ V reduce_block(V value, Combine combine) {
  __shared__ V of_warp[kMaxWarps];
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warp[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = combine(value, of_warp[warp]);
  __syncthreads();  // before the next reduction writes
  return value;
}

// Threads for a row: about 16 classes for each in a large row, and a single warp if that is enough.
inline unsigned threads_for(int64_t classes) {
  if (classes <= 128) return kWarp;
  return classes <= 8192 ? 8 * kWarp : kMaxWarps * kWarp;
}

}  // namespace owt

// Code shared by the kernels of the softmax losses: a block of whole warps works on a row. For .cu files.
#pragma once

#include <limits>
#include <span>

#include "layers/loss/softmax_rows.h"
#include "src/core/elements.cuh"
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

// What one block does with the results of all rows.
struct LossFinish {
  // Takes as many arrays from then.watched as one launch checks.
  LossFinish(std::span<const RowResult> results, Tensor& sums, LossFollowUp& then);

  // Called by all threads of the block. The order of the additions depends only on the numbers of rows and threads.
  __device__ void operator()() const {
    double loss = 0, top1 = 0, top5 = 0;
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += static_cast<int>(blockDim.x)) {
      loss += results[row].loss;
      top1 += results[row].top1;
      top5 += results[row].top5;
    }
    loss = reduce_block(loss, Sum{});
    top1 = reduce_block(top1, Sum{});
    top5 = reduce_block(top5, Sum{});
    if (threadIdx.x == 0) {
      sums[kLossSum] += loss;
      sums[kTop1Sum] += top1;
      sums[kTop5Sum] += top5;
      sums[kRowSum] += rows;
    }
    __syncthreads();
    if (!isfinite(sums[kLossSum])) note_bad_layer();
    if (threadIdx.x != 0) return;
    if (sums_for_host)
      for (int i = 0; i < kLossSums; ++i) sums_for_host[i] = sums[i];
    if (first_for_host) *first_for_host = *first;
  }

 private:
  // Called by all threads of the block. Its speed does not matter, because the run ends here.
  __device__ void note_bad_layer() const {
    for (int array = 0; array < arrays; ++array) {
      bool bad = false;
      for (int64_t i = threadIdx.x; i < count[array] && !bad; i += blockDim.x) bad = !is_finite(array, i);
      if (__syncthreads_or(bad) && threadIdx.x == 0 && layer[array] < *first) *first = layer[array];
    }
  }
  __device__ bool is_finite(int array, int64_t i) const {
    return isfinite(bf16[array] ? to_float(static_cast<const __nv_bfloat16*>(values[array])[i])
                                : static_cast<const float*>(values[array])[i]);
  }

  const RowResult* results;
  int rows;
  double* sums;
  int32_t* first;
  double* sums_for_host;
  int32_t* first_for_host;
  // The arrays to check.
  int arrays = 0;
  const void* values[kWatchedPerLaunch];
  int64_t count[kWatchedPerLaunch];
  int32_t layer[kWatchedPerLaunch];
  bool bf16[kWatchedPerLaunch];
};

}  // namespace owt

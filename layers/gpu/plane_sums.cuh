// Sums over the positions of an image, for each channel. For .cu files.
#pragma once

#include <algorithm>
#include <bit>

#include "src/core/elements.cuh"
#include "src/core/grid.h"

namespace owt {

// A block handles blockDim.x packs of channels of one row (blockIdx.x). Its blockDim.y lanes share the positions and
// add their sums in pairs, so that the order depends on the shape only. add(index, sum) adds the terms of the N
// elements from `index` on in [rows, positions, channels]. store(index, sum) takes the sums of the N channels from
// `index` on in [rows, channels].
template <int N, class Add, class Store>
__device__ void sum_over_plane(int positions, int channels, const Add& add, const Store& store) {
  __shared__ float sums[N][kBlockThreads];
  const int c = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * N;
  const int lane = static_cast<int>(threadIdx.y), lanes = static_cast<int>(blockDim.y);
  const unsigned mine = threadIdx.y * blockDim.x + threadIdx.x;
  float sum[N] = {};
  if (c < channels)
    for (int i = lane; i < positions; i += lanes)
      add((static_cast<int64_t>(blockIdx.x) * positions + i) * channels + c, sum);
#pragma unroll
  for (int j = 0; j < N; ++j) sums[j][mine] = sum[j];
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j][mine] += sums[j][mine + static_cast<unsigned>(half) * blockDim.x];
  }
  if (lane != 0 || c >= channels) return;
#pragma unroll
  for (int j = 0; j < N; ++j) sum[j] = sums[j][mine];
  store(static_cast<int64_t>(blockIdx.x) * channels + c, sum);
}

struct PlaneGrid {
  dim3 grid, block;
};
inline PlaneGrid plane_grid(int64_t rows, int64_t packs) {
  const unsigned across = std::min(32u, std::bit_ceil(static_cast<unsigned>(packs)));
  return {dim3(static_cast<unsigned>(rows), blocks_for(packs, across)), dim3(across, kBlockThreads / across)};
}

}  // namespace owt

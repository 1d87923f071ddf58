#include "tests/simulated_gpu/planted_races.h"

#include "src/core/launch.cuh"
#include "tests/simulated_gpu/test_memory.h"

namespace simulated_gpu {
namespace {

constexpr unsigned kPlantedBlocks = 3, kPlantedThreads = 64;

__global__ void through_shared_memory(bool right, int* out) {
  __shared__ int of_thread[kPlantedThreads];
  of_thread[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (right) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = of_thread[blockDim.x - 1 - threadIdx.x];
}

__global__ void through_global_memory(bool right, int* out) {
  int* of_block = out + blockIdx.x * blockDim.x;
  of_block[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (right) __syncthreads();
  const int other = of_block[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  of_block[threadIdx.x] = other;
}

__global__ void within_a_warp(bool right, int* out) {
  __shared__ int of_thread[kPlantedThreads];
  of_thread[threadIdx.x] = static_cast<int>(threadIdx.x);
  const int lane = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % warpSize, 0);
  if (right) __syncwarp();
  out[blockIdx.x * blockDim.x + threadIdx.x] = lane + of_thread[threadIdx.x ^ 1];
}

__global__ void reuse(bool right, int* out) {
  __shared__ int first;
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x == 0) first = i;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = first;
    if (right) __syncthreads();
  }
}

}  // namespace

void run_planted(Planted planted, bool right) {
  owt::Stream stream(owt::Device::kCuda);
  const DeviceArray<int> out(kPlantedBlocks * kPlantedThreads);
  const auto queue = [&](auto kernel) {
    owt::launch(kernel, kPlantedBlocks, kPlantedThreads, stream, right, out.data());
  };
  switch (planted) {
    case Planted::kSharedMemory:
      queue(through_shared_memory);
      break;
    case Planted::kGlobalMemory:
      queue(through_global_memory);
      break;
    case Planted::kWithinAWarp:
      queue(within_a_warp);
      break;
    case Planted::kReuse:
      queue(reuse);
      break;
  }
  static_cast<void>(out.read(stream));
}

}  // namespace simulated_gpu

// The last block of a kernel to arrive combines the results of all blocks, which saves a launch. For .cu files.
#pragma once

#include "src/core/launch.cuh"
#include "src/core/memory.h"
#include "src/core/tensor.h"

namespace owt {

// Counters of arrived blocks, which are 0 before and after each launch.
inline Tensor arrival_counters(int64_t count) {
  Tensor counters({count}, DType::kI32, Device::kCuda);
  const Stream& stream = setup_stream(Device::kCuda);
  counters.zero(stream);
  stream.synchronize();
  return counters;
}

// Whether this block is the last to arrive of the blocks that share the counter; the same in all its threads. The last
// block sees what the others wrote before they arrived. The counter is 0 again afterwards.
__device__ inline bool arrives_last(unsigned* arrived, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();
    last = atomicInc(arrived, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace owt

// Kernels with a race, to show that race_test finds it, and the same kernels without.
#pragma once

namespace simulated_gpu {

enum class Planted {
  kSharedMemory,  // without __syncthreads() before what other threads wrote in shared memory is read
  kGlobalMemory,  // the same in global memory
  kWithinAWarp,   // a shuffle instead of __syncwarp()
  kReuse,         // without __syncthreads() before shared memory is written again
};

// Runs the kernel to its end, right or with its race.
void run_planted(Planted planted, bool right);

}  // namespace simulated_gpu

// Kernels with a race, to show that race_test finds it, and the same kernels without.
#pragma once

namespace simulated_gpu {

enum class Planted {
  kSharedMemory,  // no __syncthreads() before a thread reads what others wrote to shared memory
  kGlobalMemory,  // no __syncthreads() before a thread reads what others wrote to global memory
  kWithinAWarp,   // a shuffle instead of __syncwarp()
  kReuse,         // no __syncthreads() before shared memory is written again
};

// Runs the kernel to its end, right or with its race.
void run_planted(Planted planted, bool right);

}  // namespace simulated_gpu

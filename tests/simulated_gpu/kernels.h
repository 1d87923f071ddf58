// Runs kernels on the host.
//
// Blocks run one after the other. The threads of a block are fibers: each runs until it waits for others, at
// __syncthreads() or at a warp operation. Threads start in ascending and in descending order in alternate blocks, and
// blocks do so in alternate kernels. So code that depends on an order gives wrong results. Threads that have ended do
// not count at __syncthreads(). If not all 32 lanes take part in a warp operation, the program ends with a message.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

// The variables are in the program itself: g++ 12 generates addresses through a table that ld does not accept.
#define OWT_OF_THREAD extern constinit thread_local __attribute__((tls_model("local-exec")))
OWT_OF_THREAD uint3 threadIdx;
OWT_OF_THREAD uint3 blockIdx;
OWT_OF_THREAD dim3 blockDim;
OWT_OF_THREAD dim3 gridDim;
#undef OWT_OF_THREAD

namespace simulated_gpu {

// Queues `body`, which runs the kernel and reads threadIdx and the like. As with CUDA's launches, cudaGetLastError()
// returns the error. Errors: a block without threads, with more than 1024 threads or more than 64 in z; a grid of more
// than 65535 blocks in y or z; a stream of another device than the current one.
void launch_kernel(cudaStream_t stream, dim3 grid, dim3 block, const void* kernel, std::function<void()> body);

// What a running thread calls.
enum class WarpOperation { kNone, kSync, kShuffle, kBallot, kGather, kLeave };

void block_barrier();
// Waits as block_barrier(); the sum of the values of all threads that came.
int block_sum(int value);
// Waits for the warp: the value that lane `source` brought; for kBallot the lanes with a value that is not 0.
uint64_t warp_exchange(WarpOperation operation, unsigned mask, uint64_t value, int source);
// Waits for the warp, and copies `bytes` bytes at `mine` of each lane to `all`, in the order of the lanes.
void warp_gather(const void* mine, void* all, size_t bytes);
int lane_of_thread();

}  // namespace simulated_gpu

// How kernels are started. For .cu files. (tests/simulated_gpu has its own version, hence the include guard.)
//
// From compute capability 9.0 on, launch() lets a kernel start while the kernel before it in its stream runs
// (programmatic dependent launch), which hides the time between the two. Every kernel begins with
// wait_for_previous_kernel(), so accesses to memory have the same order as without it:
// - All threads of a kernel wait. So it ends after the kernel before it, and whatever waits for a kernel also waits for
//   all earlier ones. Copies, events and kernels of libraries wait for the end of a kernel.
// - A kernel after a copy or a library's kernel waits for it in the same way, or starts after it. So does a kernel that
//   is queued after a wait for another stream, in a graph too. No launch needs an exception.
// - The next kernel starts only when all blocks of the running one have started, so it takes no room that they need.
// - Kernels must not load through the read-only cache (__ldg, const __restrict__): the compiler may move such loads to
//   before the wait. Tests in tests/device_code check this.
#ifndef OWT_SRC_CORE_LAUNCH_CUH
#define OWT_SRC_CORE_LAUNCH_CUH

#include <utility>

#include "src/core/cuda.h"

namespace owt {

// Shared memory of the running block, of the size that its launch gave; aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char owt_dynamic_shared[];
  return reinterpret_cast<T*>(owt_dynamic_shared);
}

// A kernel with at most this many blocks lets the next one start early: two for each multiprocessor of an H200. All
// multiprocessors then have room, and the next kernel is spread evenly. Beside a kernel that fills the GPU, the blocks
// of the next one would crowd where the first blocks end. Sources: TensorRT-LLM, pull request 18714, starts kernels
// early only for small grids; in CCCL, pull request 5249, early starts slowed down kernels that fill the GPU.
constexpr unsigned kFewBlocks = 2 * 132;

// The first statement of every kernel. Waits until the kernel before has ended and its writes are visible, then lets
// the next kernel start.
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  if (gridDim.x * gridDim.y * gridDim.z <= kFewBlocks) cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// The shared memory that a kernel may have without asking for more.
constexpr int64_t kGivenSharedBytes = 48 << 10;

// Does what launch() does; each block has this much dynamic_shared() memory.
template <class... Parameters, class... Arguments>
void launch_sharing(int64_t shared_bytes, void (*kernel)(Parameters...), dim3 grid, dim3 block, const Stream& stream,
                    Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > kGivenSharedBytes)
    OWT_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes)));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = cuda_stream(stream);
  config.attrs = &early;
  config.numAttrs = kernels_wait() ? 1 : 0;
  OWT_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

// Queues kernel(arguments...) on the stream; arguments are converted to the kernel's parameter types. Throws Error
// if the launch is not accepted. An empty grid queues nothing.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Stream& stream, Arguments&&... arguments) {
  launch_sharing(0, kernel, grid, block, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace owt

#endif

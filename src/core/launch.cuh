// How kernels are started. For .cu files. (tests/simulated_gpu has its own version, hence the include guard.)
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
  kernel<<<grid, block, static_cast<size_t>(shared_bytes), cuda_stream(stream)>>>(
      static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  OWT_CUDA(cudaGetLastError());
}

// Queues kernel(arguments...) on the stream; arguments are converted to the kernel's parameter types. Throws Error
// if the launch is not accepted. An empty grid queues nothing.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Stream& stream, Arguments&&... arguments) {
  launch_sharing(0, kernel, grid, block, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace owt

#endif

// How kernels are started. For .cu files. (tests/simulated_gpu has its own version, hence the include guard.)
#ifndef OWT_SRC_CORE_LAUNCH_CUH
#define OWT_SRC_CORE_LAUNCH_CUH

#include <utility>

#include "src/core/cuda.h"

namespace owt {

// Queues kernel(arguments...) on the stream; arguments are converted to the kernel's parameter types. Throws Error
// if the launch is not accepted. An empty grid queues nothing.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Stream& stream, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  kernel<<<grid, block, 0, cuda_stream(stream)>>>(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  OWT_CUDA(cudaGetLastError());
}

}  // namespace owt

#endif

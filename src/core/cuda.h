// The CUDA runtime: the one error macro and the cudaStream_t of a Stream. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "src/core/stream.h"

// Every call of the runtime goes through this macro. It throws Error with the call, what was being done, and the cure.
#define OWT_CUDA(call) ::owt::detail::check_cuda((call), #call)

namespace owt {

inline cudaStream_t cuda_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

// Bytes rounded up to a multiple of 256, the alignment of cudaMalloc: for several tensors in one allocation.
inline int64_t cuda_aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Whether kernels wait for the kernel before (launch.cuh) on the calling host thread's GPU. It depends on the code that
// the GPU runs: a GPU of compute capability 9.0 may run code that was compiled for an older one.
bool kernels_wait();

// A CUDA event that is destroyed with its handle.
std::shared_ptr<CUevent_st> make_cuda_event();

namespace detail {
void check_cuda(cudaError_t status, const char* call);
}

// An attribute of the calling host thread's GPU.
inline int attribute_of_gpu(cudaDeviceAttr attribute) {
  int gpu = 0, value = 0;
  OWT_CUDA(cudaGetDevice(&gpu));
  OWT_CUDA(cudaDeviceGetAttribute(&value, attribute, gpu));
  return value;
}

}  // namespace owt

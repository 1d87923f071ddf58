// Maps a device value to its tag. Only this header depends on which back-ends were built.
#pragma once

#include <utility>

#include "src/core/device.h"
#include "src/system/check.h"

namespace owt {

#ifdef OWT_WITH_CUDA
constexpr bool kCudaBuilt = true;
#else
constexpr bool kCudaBuilt = false;
#endif

// Calls function(Cpu{...}) or function(Cuda{...}).
template <class Function>
decltype(auto) dispatch(const Compute& on, Function&& function) {
  if constexpr (kCudaBuilt) {
    if (on.device == Device::kCuda) return std::forward<Function>(function)(Cuda{on.precision, on.deterministic});
  }
  OWT_CHECK_EQ(on.device, Device::kCpu, "this program has only the CPU back-end");
  return std::forward<Function>(function)(Cpu{on.precision, on.canonical_rows});
}

}  // namespace owt

// From a device value to its tag. This header is the one place that knows which back-ends were built.
#pragma once

#include <utility>

#include "src/core/check.h"
#include "src/core/device.h"

namespace owt {

// function(Cpu{}), or the overload of the device asked for.
template <class Function>
decltype(auto) dispatch(Device device, Function&& function) {
  OWT_CHECK_EQ(device, Device::kCpu, "this program has only the CPU back-end");
  return std::forward<Function>(function)(Cpu{});
}

}  // namespace owt

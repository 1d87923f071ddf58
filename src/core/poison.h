// With OWT_POISON=1 in the environment, memory is filled with NaN as soon as its contract allows no more reads. A read
// that violates the contract then shows up in the results. The mode is slow; it is for tests.
#pragma once

#include <cstdint>

#include "src/core/device.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

bool poisons();

// Queued on the stream: sets all bits, which is NaN in every floating-point type and -1 in integers. Does nothing if
// the mode is off or the tensor is undefined.
void poison(const Tensor& memory, const Stream& stream);

// Switches the mode in a test.
class WithPoison {
 public:
  explicit WithPoison(bool on);
  ~WithPoison();
  WithPoison(const WithPoison&) = delete;
  WithPoison& operator=(const WithPoison&) = delete;

 private:
  bool before_;
};

void set_all_bits(Cpu, void* to, int64_t bytes, const Stream& stream);
void set_all_bits(Cuda, void* to, int64_t bytes, const Stream& stream);

}  // namespace owt

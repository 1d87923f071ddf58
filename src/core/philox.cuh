// The random numbers of src/core/philox.h in kernels: the same words and index give the same bits.
#pragma once

#include <cuda_runtime.h>

#include <numbers>

#include "src/core/philox.h"

namespace owt {

// Passed to kernels by value.
class DevicePhilox {
 public:
  struct PhiloxBlock {
    uint32_t at[4];
  };

  explicit DevicePhilox(const Philox& random) : words_(random.words()) {}

  // A copy for a step that only the device knows.
  __device__ DevicePhilox at_step(uint64_t step) const {
    DevicePhilox other = *this;
    other.words_.step = static_cast<uint32_t>(step);
    return other;
  }

  __device__ PhiloxBlock block(uint64_t index) const {
    const r123::Philox4x32::ctr_type counter{
        {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), words_.step, words_.purpose}};
    const r123::Philox4x32::key_type key{{words_.key[0], words_.key[1]}};
    const auto out = r123::Philox4x32()(counter, key);
    return {{out[0], out[1], out[2], out[3]}};
  }

  __device__ uint32_t bits(uint64_t element) const { return block(element / 4).at[element % 4]; }
  __device__ float uniform(uint64_t element) const { return to_uniform(bits(element)); }
  // Computed in double precision as on the host, whose logarithm and angle functions may differ in the last bit.
  __device__ float normal(uint64_t element) const {
    const PhiloxBlock four = block(element / 4);
    const uint64_t pair = element % 4 / 2 * 2;
    const double radius = sqrt(-2.0 * log((four.at[pair] + 1.0) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * four.at[pair + 1] * 0x1p-32;
    return static_cast<float>(radius * (element % 2 == 0 ? cos(angle) : sin(angle)));
  }

  __device__ static float to_uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

 private:
  Philox::Words words_;
};

}  // namespace owt

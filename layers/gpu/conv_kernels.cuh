// GPU kernels for convolutions besides cuDNN and packing (space_to_depth.h): bias, relu, and gradients.
#pragma once

#include "layers/gpu/channels.cuh"
#include "layers/gpu/space_to_depth.h"
#include "src/core/grid.h"

namespace owt {

// y += bias, then relu if kRelu; bias may be null. NaN stays NaN.
template <class T, int kPackWidth, bool kRelu>
struct AddBias {
  static constexpr int kWidth = kPackWidth, kSums = 0, kResident = 1;
  struct Biases {
    float bias[kWidth];
  };
  T* y;
  const float* bias;

  __device__ Biases prepare(int channel) const {
    Biases local{};
    if (bias) load_numbers(bias + channel, local.bias);
    return local;
  }
  __device__ void at(int64_t, int64_t index, const Biases& local, float (&)[kMaxSums][kWidth]) const {
    Pack<T, kWidth> pack = load_pack<T, kWidth>(y + index);
    for (int i = 0; i < kWidth; ++i) {
      const float value = to_float(pack.at[i]) + local.bias[i];
      pack.at[i] = from_float<T>(kRelu && value < 0 ? 0 : value);
    }
    store_pack(y + index, pack);
  }
};

// The identity, for weights that are not packed.
struct Unpacked {
  __host__ __device__ int64_t weight_place(int64_t weight) const { return weight; }
};

// grad = beta * grad + dw, where dw is in packed order; beta 0 does not read grad.
template <class T, class Sum, class Packing>
__global__ void add_weight_gradient(Packing packing, int64_t count, const T* dw, float beta, Sum* grad) {
  wait_for_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float before = beta == 0 ? 0 : beta * to_float(grad[i]);
  grad[i] = from_float<Sum>(before + to_float(dw[packing.weight_place(i)]));
}

// Numbers in [-0.5, 0.5) whose sums differ if they are added in another order.
template <class T>
__global__ void fill_unequal(int64_t count, T* to) {
  wait_for_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t mixed = static_cast<uint32_t>(i) * 2654435761u;  // Knuth's multiplicative hash
  to[i] = from_float<T>(static_cast<float>(mixed >> 8) * 0x1p-24f - 0.5f);
}

}  // namespace owt

// What a convolution on the GPU needs besides cuDNN: bias, relu, their gradients, and packing (space_to_depth.h).
#pragma once

#include "layers/channels.cuh"
#include "layers/space_to_depth.h"
#include "src/core/grid.h"

namespace owt {

// y += bias, then relu if kRelu; bias may be null. NaN stays NaN.
template <class T, int kPackWidth, bool kRelu>
struct AddBias {
  static constexpr int kWidth = kPackWidth, kSums = 0, kResident = 1;
  struct Local {
    float bias[kWidth];
  };
  T* y;
  const float* bias;

  __device__ Local prepare(int channel) const {
    Local local{};
    if (bias) load_numbers(bias + channel, local.bias);
    return local;
  }
  __device__ void at(int64_t, int64_t index, const Local& local, float (&)[kMaxSums][kWidth]) const {
    Pack<T, kWidth> pack = load_pack<T, kWidth>(y + index);
    for (int i = 0; i < kWidth; ++i) {
      const float value = to_float(pack.at[i]) + local.bias[i];
      pack.at[i] = from_float<T>(kRelu && value < 0 ? 0 : value);
    }
    store_pack(y + index, pack);
  }
};

constexpr int kQuad = 4;  // packed channels that one thread writes

// One block of threads for each row of packed images.
template <class T>
__global__ void pack_images(ChannelPacking packing, const T* x, T* packed) {
  const ConvGeometry& to = packing.packed();
  const int quads = static_cast<int>(to.in_c) / kQuad, items = static_cast<int>(to.in_w) * quads;
  const int64_t row = blockIdx.x, n = row / to.in_h, h = row % to.in_h;
  for (int item = static_cast<int>(threadIdx.x); item < items; item += static_cast<int>(blockDim.x)) {
    const int w = item / quads, channel = item % quads * kQuad;
    Pack<T, kQuad> pack;
    for (int i = 0; i < kQuad; ++i) {
      const int64_t source = packing.image_source(n, h, w, packing.place(channel + i));
      pack.at[i] = source < 0 ? from_float<T>(0) : x[source];
    }
    store_pack(packed + (row * to.in_w + w) * to.in_c + channel, pack);
  }
}

template <class T>
__global__ void pack_weights(ChannelPacking packing, int64_t count, const T* weights, T* packed) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t source = packing.weight_source(i);
  packed[i] = source < 0 ? from_float<T>(0) : weights[source];
}

// Weights that are where they were.
struct Unpacked {
  __host__ __device__ int64_t weight_place(int64_t weight) const { return weight; }
};

// grad = beta * grad + dw, dw in the places of the packed weights; beta 0 does not read grad.
template <class T, class Sum, class Packing>
__global__ void add_weight_gradient(Packing packing, int64_t count, const T* dw, float beta, Sum* grad) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float before = beta == 0 ? 0 : beta * to_float(grad[i]);
  grad[i] = from_float<Sum>(before + to_float(dw[packing.weight_place(i)]));
}

}  // namespace owt

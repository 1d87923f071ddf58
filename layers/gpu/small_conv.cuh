// What our own convolution kernels share (small_conv.h): copies from global to shared memory. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "layers/base/small_conv_limits.h"
#include "src/core/cuda.h"
#include "src/core/elements.cuh"

namespace owt {

constexpr int kSmallConvThreads = 256, kSmallConvWarps = kSmallConvThreads / 32;
constexpr int kSmallConvResident = 2;  // blocks that must fit on a multiprocessor: limits the registers
constexpr int kProductDepth = 16;      // terms of a sum in one product of matrices
constexpr int kBankShift = 8;          // elements between rows of multiples of 16, so that they lie in different banks
constexpr int kPacked = 8;             // channels of a pack of 16 bytes
constexpr int kTilePixels = 256;       // a block takes about as many of y at a time
constexpr int kReserved = 1 << 10;     // bytes of shared memory that each block takes besides its own

using SmallElement = __nv_bfloat16;

// store(i, load(i)) for i < count, shared among the threads of the block. Several loads of a thread are in flight.
template <class Load, class Store>
__device__ void move_items(int count, const Load& load, const Store& store) {
  constexpr int kAtOnce = 4;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kAtOnce * kSmallConvThreads) {
    decltype(load(0)) some[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (const int i = first + j * kSmallConvThreads; i < count) some[j] = load(i);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (const int i = first + j * kSmallConvThreads; i < count) store(i, some[j]);
  }
}

// An image in global memory, [height, width, channels], and its pixels in shared memory.
struct TilePixels {
  int height, width, channels;
  int depth;  // channels in shared memory, a multiple of kPacked if `channels` is
  int pixel;  // elements from one pixel to the next in shared memory
};

// Copies rows x columns pixels; the first one is at (row, column) of the image. Writes zeros outside the image, and for
// channels from `channels` on.
template <int kWidth>
__device__ void load_pixels(const TilePixels& of, const SmallElement* image, int channels, int row, int column,
                            int rows, int columns, SmallElement* shared) {
  using Channels = Pack<SmallElement, kWidth>;
  const int packs = of.depth / kWidth;
  move_items(
      rows * columns * packs,
      [&](int i) {
        const int pixel = i / packs, channel = i % packs * kWidth;
        const int h = row + pixel / columns, w = column + pixel % columns;
        if (h < 0 || h >= of.height || w < 0 || w >= of.width || channel >= channels) return Channels{};
        return load_pack<SmallElement, kWidth>(image + (h * of.width + w) * of.channels + channel);
      },
      [&](int i, const Channels& pack) { store_pack(shared + i / packs * of.pixel + i % packs * kWidth, pack); });
}

__device__ inline void load_pixels(const TilePixels& of, const SmallElement* image, int channels, int row, int column,
                                   int rows, int columns, SmallElement* shared) {
  if (of.channels % kPacked == 0)
    load_pixels<kPacked>(of, image, channels, row, column, rows, columns, shared);
  else
    load_pixels<1>(of, image, channels, row, column, rows, columns, shared);
}

__host__ __device__ constexpr int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace owt

// Kernels over all positions of a channels-last tensor, [positions, channels]: element by element, with numbers of each
// channel at hand, and with sums per channel. For .cu files.
//
// The work is a struct:
//   struct Work {
//     static constexpr int kWidth;   // channels side by side that one call handles
//     static constexpr int kSums;    // sums per channel, may be 0
//     struct Local;                  // what a thread keeps of its kWidth channels
//     __device__ Local prepare(int channel) const;
//     // Of the elements at `index` and the kWidth - 1 after it; adds to sums[s][lane].
//     __device__ void at(int64_t index, const Local& local, float (&sums)[kMaxSums][kWidth]) const;
//   };
// Sums are taken in an order that depends on the extents only: by threads and blocks in f32, over all blocks in f64.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/elements.cuh"
#include "src/core/launch.cuh"

namespace owt {

constexpr int kMaxSums = 2;
constexpr int kChannelThreads = 256;

// How the positions are dealt: blocks of `lanes` groups of channels times `rows` positions, `chunks` blocks one below
// the other, each with `chunk` consecutive positions.
struct ChannelTiles {
  int64_t positions = 0, chunk = 1;
  int channels = 0, chunks = 1;
  dim3 grid, block;

  ChannelTiles(int64_t positions, int64_t channels, int width)
      : positions(positions), channels(static_cast<int>(channels)) {
    const int64_t groups = channels / width;
    const int64_t lanes = std::clamp<int64_t>(groups, 1, 32), rows = kChannelThreads / lanes;
    const int64_t across = (groups + lanes - 1) / lanes;
    // As many blocks as the registers let run at once on the largest GPUs, and at least 8 positions for each thread.
    constexpr int64_t kBlocks = 132 * 5;
    const int64_t most = std::clamp<int64_t>(kBlocks / std::max<int64_t>(across, 1), 1, kBlocks);
    const int64_t wanted = std::clamp<int64_t>(positions / (8 * rows), 1, most);
    chunk = std::max<int64_t>((positions + wanted - 1) / wanted, 1);
    chunks = static_cast<int>((positions + chunk - 1) / chunk);
    grid = dim3(static_cast<unsigned>(across), static_cast<unsigned>(chunks));
    block = dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(rows));
  }
};

// Floats that hold the sums of all blocks, [chunks][sums][channels], whatever the width.
inline int64_t partial_sums(int64_t positions, int64_t channels, int sums) {
  int chunks = 1;
  for (const int width : {1, kPack<float>, kPack<__nv_bfloat16>})
    if (channels % width == 0) chunks = std::max(chunks, ChannelTiles(positions, channels, width).chunks);
  return int64_t{chunks} * sums * channels;
}

template <class Work>
__global__ void over_channels(Work work, int64_t positions, int64_t chunk, int channels, float* partial) {
  const int lane = static_cast<int>(threadIdx.x), row = static_cast<int>(threadIdx.y);
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * Work::kWidth;
  float sums[kMaxSums][Work::kWidth] = {};
  if (channel < channels) {
    const typename Work::Local local = work.prepare(channel);
    const int64_t begin = blockIdx.y * chunk, end = begin + chunk < positions ? begin + chunk : positions;
    for (int64_t p = begin + row; p < end; p += blockDim.y) work.at(p * channels + channel, local, sums);
  }
  if constexpr (Work::kSums > 0) {
    __shared__ float shared[kChannelThreads * Work::kWidth];
    for (int s = 0; s < Work::kSums; ++s) {
      float* mine = shared + (row * static_cast<int>(blockDim.x) + lane) * Work::kWidth;
      for (int i = 0; i < Work::kWidth; ++i) mine[i] = sums[s][i];
      __syncthreads();
      if (row == 0 && channel < channels)
        for (int i = 0; i < Work::kWidth; ++i) {
          float sum = 0;
          for (int r = 0; r < static_cast<int>(blockDim.y); ++r)
            sum += shared[(r * static_cast<int>(blockDim.x) + lane) * Work::kWidth + i];
          partial[(int64_t{blockIdx.y} * Work::kSums + s) * channels + channel + i] = sum;
        }
      __syncthreads();
    }
  }
}

constexpr int kFinishChannels = 32, kFinishSlices = 8;  // threads of a block of finish_channels

// finish(channel, sums) with the kSums sums of every channel.
template <int kSums, class Finish>
__global__ void finish_channels(Finish finish, const float* partial, int chunks, int channels) {
  __shared__ double shared[kMaxSums][kFinishSlices][kFinishChannels];
  const int lane = static_cast<int>(threadIdx.x), slice = static_cast<int>(threadIdx.y);
  const int channel = static_cast<int>(blockIdx.x) * kFinishChannels + lane;
  for (int s = 0; s < kSums; ++s) {
    double sum = 0;
    if (channel < channels)
      for (int c = slice; c < chunks; c += kFinishSlices)
        sum += static_cast<double>(partial[(int64_t{c} * kSums + s) * channels + channel]);
    shared[s][slice][lane] = sum;
  }
  __syncthreads();
  if (slice > 0 || channel >= channels) return;
  double sums[kMaxSums] = {};
  for (int s = 0; s < kSums; ++s)
    for (int i = 0; i < kFinishSlices; ++i) sums[s] += shared[s][i][lane];
  finish(channel, sums);
}

// Queues the work on all positions; `partial` takes the sums, partial_sums() floats, and is null where there are none.
template <class Work>
void queue_over_channels(const Work& work, const ChannelTiles& tiles, float* partial, const Stream& stream) {
  launch(over_channels<Work>, tiles.grid, tiles.block, stream, work, tiles.positions, tiles.chunk, tiles.channels,
         partial);
}

template <int kSums, class Finish>
void queue_finish(const Finish& finish, const ChannelTiles& tiles, const float* partial, const Stream& stream) {
  const auto blocks = static_cast<unsigned>((tiles.channels + kFinishChannels - 1) / kFinishChannels);
  launch(finish_channels<kSums, Finish>, dim3(blocks), dim3(kFinishChannels, kFinishSlices), stream, finish, partial,
         tiles.chunks, tiles.channels);
}

// grad = beta * grad + the sum; beta 0 does not read grad. The finish of a parameter's gradient.
struct AddToGrad {
  float* grad;
  float beta;

  __device__ void operator()(int channel, const double* sums) const {
    grad[channel] = (beta == 0 ? 0 : beta * grad[channel]) + static_cast<float>(sums[0]);
  }
};

// function(T{}, std::integral_constant<int, kWidth>{}): packs of 16 bytes where channels and addresses allow it.
template <class T, class Function>
void with_width(int64_t channels, std::initializer_list<const void*> addresses, const Function& function) {
  bool packs = channels % kPack<T> == 0;
  for (const void* address : addresses) packs = packs && reinterpret_cast<uintptr_t>(address) % 16 == 0;
  if (packs)
    function(T{}, std::integral_constant<int, kPack<T>>{});
  else
    function(T{}, std::integral_constant<int, 1>{});
}

}  // namespace owt

// Kernels over all positions of a channels-last tensor, [positions, channels]. They work element by element, with
// numbers for each channel, and with sums over positions. For .cu files.
//
// The work is a struct:
//   struct Work {
//     static constexpr int kWidth;     // neighbouring channels that one call handles
//     static constexpr int kSums;      // sums for each channel, may be 0
//     static constexpr int kResident;  // blocks that must fit on a multiprocessor: limits the registers
//     // What a thread stores for the kWidth channels from `channel` on, of any type; at() gets it.
//     __device__ auto prepare(int channel) const;
//     // Handles the elements at `index`, which is position * channels + channel, and the kWidth - 1 after it; adds to
//     // sums[s][lane].
//     __device__ void at(int64_t position, int64_t index, const auto& prepared, float (&sums)[kMaxSums][kWidth]) const;
//   };
// The order of summation depends only on the work and the extents, so it is the same on every GPU. Threads and blocks
// sum in f32; the sums of blocks are added in f64. The last block of a group of channels to arrive does that, and calls
//   __device__ void Finish::operator()(int channel, const double* sums) const;
// for each channel. Therefore a work with sums uses the same number of blocks on any GPU: as many as 132
// multiprocessors (the largest GPUs) run at once. A work without sums uses as many as the GPU at hand runs at once.
//
// If groups of positions have their own numbers and sums, the work has
//   __device__ void enter(const PositionGroup& group);
// which switches it to a group. Its Finish has the same function. Each group has its own layer of the grid, in z.
// A launch may take a part of the groups. If the Finish also has
//   __device__ void finish_groups(int channel) const;
// the last of several groups to be finished calls it for each channel, in whichever launch. It sees what operator()
// stored for all groups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "layers/base/param.h"
#include "layers/gpu/last_block.cuh"
#include "src/core/elements.cuh"
#include "src/core/launch.cuh"

namespace owt {

constexpr int kMaxSums = 2;
constexpr int kChannelThreads = 256;
constexpr int kMostMultiprocessors = 132;

// How positions are split over blocks. A block has `lanes` groups of channels times `rows` positions. `chunks` blocks
// cover all positions, each with `chunk` consecutive ones.
struct ChannelTiles {
  int64_t chunk = 1;
  // most_chunks: an upper bound on chunks, for any smaller number of positions or blocks
  int chunks = 1, most_chunks = 1;
  dim3 grid, block;

  // `blocks`: approximate limit on the number of blocks.
  ChannelTiles(int64_t positions, int64_t channels, int width, int64_t blocks) {
    // Packs of 16 bytes fill a cache line with 8 lanes. Fewer lanes mean fewer chunks.
    const int64_t groups = channels / width, most_lanes = width > 1 ? 8 : 32;
    const int64_t across = std::max<int64_t>((groups + most_lanes - 1) / most_lanes, 1);
    const int64_t lanes = std::max<int64_t>((groups + across - 1) / across, 1), rows = kChannelThreads / lanes;
    // At least 2 positions for each thread.
    const int64_t wanted = std::clamp<int64_t>(positions / (2 * rows), 1, std::max<int64_t>(blocks / across, 1));
    most_chunks = static_cast<int>(wanted);
    chunk = std::max<int64_t>((positions + wanted - 1) / wanted, 1);
    chunks = static_cast<int>((positions + chunk - 1) / chunk);
    grid = dim3(static_cast<unsigned>(across), static_cast<unsigned>(chunks));
    block = dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(rows));
  }
};

// Positions in groups of consecutive ones; all groups but the last have the same size. A launch takes `launched` groups
// from `first` on: all, or a part().
struct PositionGroups {
  int64_t positions, of_group;
  int count, first = 0, launched;

  PositionGroups(int64_t all) : PositionGroups(all, all, 1) {}  // NOLINT: a number of positions is one group
  PositionGroups(int64_t all, int64_t each, int groups)
      : positions(all), of_group(each), count(groups), launched(groups) {}

  PositionGroups part(int from, int groups) const {
    PositionGroups some = *this;
    some.first = from;
    some.launched = groups;
    return some;
  }
  int64_t most() const { return std::max(of_group, positions - (count - 1) * of_group); }
  // blocks: for all groups of a launch together.
  ChannelTiles tiles(int64_t channels, int width, int64_t blocks) const {
    ChannelTiles tiles(most(), channels, width, std::max<int64_t>(blocks / launched, 1));
    tiles.grid.z = static_cast<unsigned>(launched);
    return tiles;
  }
};

struct PositionGroup {
  int index, count;     // count: of all groups
  int64_t first, last;  // its positions
  int channels;
};

// Intermediate memory for sums: the sums of all blocks, and the numbers of blocks that have arrived, of each channel
// group in each group of positions, then of finished groups of positions in each channel group. They are 0 before and
// after the launches for all groups (last_block.cuh).
struct SumMemory {
  float* partial = nullptr;
  unsigned* arrived = nullptr;
};

// Number of floats for the sums of all blocks, for any width and at most this many positions.
inline int64_t partial_sums(const PositionGroups& positions, int64_t channels, int sums, int resident) {
  int64_t most = 0;
  for (const int width : {1, kPack<float>, kPack<__nv_bfloat16>}) {
    if (channels % width != 0) continue;
    const ChannelTiles tiles = positions.tiles(channels, width, int64_t{kMostMultiprocessors} * resident);
    most = std::max<int64_t>(most, int64_t{tiles.grid.x} * tiles.most_chunks * tiles.block.x * width);
  }
  return most * sums * positions.launched;
}

// The counters of arrived blocks, for any width; each op with sums has its own.
inline Tensor arrived_blocks(int64_t channels, int64_t groups = 1) {
  const int64_t of_group = (channels + 31) / 32;  // no block has fewer channels, but the last
  return arrival_counters(of_group * (groups + 1));
}

// The intermediate memory of one op.
class SumBuffers {
 public:
  SumBuffers() = default;
  SumBuffers(int64_t positions, int64_t channels, int sums, int resident)
      : partial_({partial_sums(positions, channels, sums, resident)}, DType::kF32, Device::kCuda),
        arrived_(arrived_blocks(channels)) {}

  SumMemory memory() { return {partial_.data(), static_cast<unsigned*>(arrived_.raw())}; }

 private:
  Tensor partial_, arrived_;
};

// Load and store the numbers of kWidth channels, 16 bytes at a time.
template <int kWidth>
__device__ void load_numbers(const float* from, float (&to)[kWidth]) {
  constexpr int kAtOnce = kWidth % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int i = 0; i < kWidth; i += kAtOnce) {
    const Pack<float, kAtOnce> some = load_pack<float, kAtOnce>(from + i);
    for (int j = 0; j < kAtOnce; ++j) to[i + j] = some.at[j];
  }
}

template <int kWidth>
__device__ void store_numbers(const float (&from)[kWidth], float* to) {
  constexpr int kAtOnce = kWidth % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int i = 0; i < kWidth; i += kAtOnce) {
    Pack<float, kAtOnce> some;
    for (int j = 0; j < kAtOnce; ++j) some.at[j] = from[i + j];
    store_pack(to + i, some);
  }
}

// to[lane * kTerms + w] = the sum over the rows of the block of terms[w].
template <int kTerms>
__device__ void sum_rows(const float (&terms)[kTerms], float* to) {
  // The threads of a warp have different lanes and different w; 8 extra floats put their accesses into different banks.
  __shared__ float shared[kTerms][kChannelThreads + 8];
  __shared__ float of_slices[kChannelThreads];
  const int lanes = static_cast<int>(blockDim.x), rows = static_cast<int>(blockDim.y);
  const int lane = static_cast<int>(threadIdx.x), row = static_cast<int>(threadIdx.y);
#pragma unroll
  for (int w = 0; w < kTerms; ++w) shared[w][row * lanes + lane] = terms[w];
  __syncthreads();
  const int slices = rows / kTerms, slice = row / kTerms, mine = row % kTerms;
  float sum = 0;
  if (slice < slices)
    for (int r = slice; r < rows; r += slices) sum += shared[mine][r * lanes + lane];
  of_slices[row * lanes + lane] = sum;
  __syncthreads();
  if (row >= kTerms) return;
  sum = 0;
  for (int i = 0; i < slices; ++i) sum += of_slices[(i * kTerms + row) * lanes + lane];
  to[lane * kTerms + row] = sum;
}

// Calls finish() for the channels of this group with the sums of `chunks` blocks: partial[chunk][lane][sum][channel].
template <int kSums, int kWidth, class Finish>
__device__ void finish_channels(const Finish& finish, const float* partial, int chunks, int first_channel,
                                int channels) {
  constexpr int kTerms = kSums * kWidth, kAtOnce = kTerms % 4 == 0 ? 4 : kTerms, kPacks = kTerms / kAtOnce;
  __shared__ double of_slices[kAtOnce][kChannelThreads];
  const int lanes = static_cast<int>(blockDim.x), rows = static_cast<int>(blockDim.y);
  const int lane = static_cast<int>(threadIdx.x), row = static_cast<int>(threadIdx.y);
  const int slices = rows / kPacks, slice = row / kPacks, pack = row % kPacks;
  double sums[kAtOnce] = {};
  if (slice < slices) {
    const float* mine = partial + lane * kTerms + pack * kAtOnce;
#pragma unroll 8
    for (int c = slice; c < chunks; c += slices) {
      const Pack<float, kAtOnce> some = load_pack<float, kAtOnce>(mine + int64_t{c} * lanes * kTerms);
      for (int i = 0; i < kAtOnce; ++i) sums[i] += static_cast<double>(some.at[i]);
    }
  }
  for (int i = 0; i < kAtOnce; ++i) of_slices[i][row * lanes + lane] = sums[i];
  __syncthreads();
  // A thread for each channel of the group.
  const int offset = row % kWidth, channel = first_channel + lane * kWidth + offset;
  if (row >= kWidth || channel >= channels) return;
  double totals[kSums] = {};
  for (int s = 0; s < kSums; ++s) {
    const int term = s * kWidth + offset;
    for (int i = 0; i < slices; ++i)
      totals[s] += of_slices[term % kAtOnce][(i * kPacks + term / kAtOnce) * lanes + lane];
  }
  finish(channel, totals);
}

template <class Work>
constexpr bool kInGroups = requires(Work work, PositionGroup group) {
  work.enter(group);
};

template <class Finish>
constexpr bool kFinishesGroups = requires(Finish finish) {
  finish.finish_groups(0);
};

template <class Work, class Finish>
__global__ void __launch_bounds__(kChannelThreads, Work::kResident)
    over_channels(Work work, Finish finish, PositionGroups groups, int64_t chunk, int channels, SumMemory memory) {
  wait_for_previous_kernel();
  constexpr int kWidth = Work::kWidth, kSums = Work::kSums;
  const int first_channel = static_cast<int>(blockIdx.x * blockDim.x) * kWidth;
  const int channel = first_channel + static_cast<int>(threadIdx.x) * kWidth;
  PositionGroup group{0, groups.count, 0, groups.positions, channels};
  if constexpr (kInGroups<Work>) {
    group.index = groups.first + static_cast<int>(blockIdx.z);
    group.first = group.index * groups.of_group;
    if (group.index + 1 < groups.count) group.last = group.first + groups.of_group;
    work.enter(group);
    if constexpr (kSums > 0) finish.enter(group);
  }
  float sums[kMaxSums][kWidth] = {};
  if (channel < channels) {
    const auto local = work.prepare(channel);
    const int64_t begin = group.first + blockIdx.y * chunk;
    const int64_t end = begin + chunk < group.last ? begin + chunk : group.last;
    for (int64_t p = begin + threadIdx.y; p < end; p += blockDim.y) work.at(p, p * channels + channel, local, sums);
  }
  if constexpr (kSums > 0) {
    float terms[kSums * kWidth];
    for (int s = 0; s < kSums; ++s)
      for (int i = 0; i < kWidth; ++i) terms[s * kWidth + i] = sums[s][i];
    const int64_t of_block = int64_t{blockDim.x} * kSums * kWidth;
    const int64_t column = int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
    float* partial = memory.partial + column * gridDim.y * of_block;
    sum_rows(terms, partial + blockIdx.y * of_block);
    if (!arrives_last(memory.arrived + column, gridDim.y)) return;
    finish_channels<kSums, kWidth>(finish, partial, static_cast<int>(gridDim.y), first_channel, channels);
    if constexpr (kFinishesGroups<Finish>) {
      unsigned* finished = memory.arrived + int64_t{groups.count} * gridDim.x + blockIdx.x;
      if (groups.count == 1 || !arrives_last(finished, static_cast<unsigned>(groups.count))) return;
      const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
      if (thread < static_cast<int>(blockDim.x) * kWidth && first_channel + thread < channels)
        finish.finish_groups(first_channel + thread);
    }
  }
}

struct NoFinish {};  // for a work without sums

// The number of blocks that the calling host thread's GPU runs at once; queried once, because the GPUs of a machine are
// equal.
template <class Work, class Finish>
int64_t blocks_at_once() {
  if constexpr (Work::kSums > 0) {
    return int64_t{kMostMultiprocessors} * Work::kResident;
  } else {
    static const int64_t blocks = [] {
      int each = 0;
      OWT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &each, reinterpret_cast<const void*>(&over_channels<Work, Finish>), kChannelThreads, 0));
      return int64_t{attribute_of_gpu(cudaDevAttrMultiProcessorCount)} * each;
    }();
    return blocks;
  }
}

// Queues the work on all positions, and the finish on its sums. A work without sums needs no memory.
template <class Work, class Finish = NoFinish>
void queue_over_channels(const Work& work, const PositionGroups& positions, int64_t channels, const Stream& stream,
                         const Finish& finish = {}, SumMemory memory = {}) {
  OWT_CHECK(positions.count == 1 || kInGroups<Work>);
  const ChannelTiles tiles = positions.tiles(channels, Work::kWidth, blocks_at_once<Work, Finish>());
  launch(over_channels<Work, Finish>, tiles.grid, tiles.block, stream, work, finish, positions, tiles.chunk, channels,
         memory);
}

// The finish for a parameter's gradient: grad = beta * grad + the sum; beta 0 does not read grad. grad is null without
// a trained parameter.
struct AddToGrad {
  float* grad = nullptr;
  float beta = 0;

  AddToGrad() = default;
  explicit AddToGrad(Param* param) {
    if (!param || !learns(param->role)) return;
    grad = param->grad.data();
    beta = param->take_beta();
  }

  __device__ void operator()(int channel, const double* sums) const {
    if (grad) grad[channel] = (beta == 0 ? 0 : beta * grad[channel]) + static_cast<float>(sums[0]);
  }
};

// Calls function(T{}, std::integral_constant<int, kWidth>{}): packs of 16 bytes if channels and addresses allow it.
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

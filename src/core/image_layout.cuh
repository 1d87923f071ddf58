// Kernels that write images in an ImageLayout. Each thread writes rows of blocks. Consecutive threads write the rows of
// one packed pixel, then of the pixels of a row, then of the next rows. Threads do not divide, because divisions took
// most of the time. For .cu files.
#pragma once

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/image_layout.h"

namespace owt {

// kCount values as elements. One instruction converts two floats to bf16.
template <class T, int kCount, class Value>
__device__ inline Pack<T, kCount> pack_of(const Value* values) {
  Pack<T, kCount> pack;
  if constexpr (std::is_same_v<T, Value>) {
    for (int i = 0; i < kCount; ++i) pack.at[i] = values[i];
  } else if constexpr (kCount % 2 == 0) {
    for (int i = 0; i < kCount; i += 2) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(values[i], values[i + 1]);
      pack.at[i] = two.x, pack.at[i + 1] = two.y;
    }
  } else {
    for (int i = 0; i < kCount; ++i) pack.at[i] = from_float<T>(values[i]);
  }
  return pack;
}

// Blocks whose extents are known at compile time: kRows rows of kPixels pixels of kColours elements each. A packed
// pixel has kChannels elements. They are stored by the widest accesses that fit; the memory must be aligned to 16
// bytes.
template <class T, int kRows, int kPixels, int kColours, int kChannels>
class FixedBlocks {
 public:
  static constexpr int kFixedColours = kColours;
  __device__ static constexpr int rows() { return kRows; }
  __device__ static constexpr int pixels() { return kPixels; }
  __device__ static constexpr int run() { return kRun; }
  __device__ static constexpr int colours() { return kColours; }
  __device__ static constexpr int channels() { return kChannels; }

  // Writes value(pixel, colour), a T or a float, of one row of a block. After the last row of a block it fills the
  // packed pixel with zeros.
  template <class Value>
  __device__ static void write(T* to, bool last, const Value& value) {
    decltype(value(0, 0)) run[kRun + kFill]{};
    for (int pixel = 0; pixel < kPixels; ++pixel)
      for (int colour = 0; colour < kColours; ++colour) run[pixel * kColours + colour] = value(pixel, colour);
    if constexpr (kRows == 1) {
      store<kChannels>(run, to);
    } else {
      store<kRun>(run, to);
      if (kFill > 0 && last) store<kFill>(run + kRun, to + kRun);
    }
  }

 private:
  static constexpr int kRun = kPixels * kColours;
  static constexpr int kFill = kChannels - kRows * kRun;
  static constexpr int kTogether = std::gcd(kRows == 1 ? kChannels : std::gcd(kRun, kChannels), 16);
  static constexpr int kStore = std::min(kTogether, 16 / static_cast<int>(sizeof(T)));
  static_assert(kFill >= 0);

  template <int kCount, class Value>
  __device__ static void store(const Value* run, T* to) {
    for (int i = 0; i < kCount; i += kStore) store_pack(to + i, pack_of<T, kStore>(run + i));
  }
};

// Blocks of any extents, element by element.
template <class T>
class AnyBlocks {
 public:
  static constexpr int kFixedColours = 0;  // unknown
  explicit AnyBlocks(const ImageLayout& to)
      : rows_(to.block_h), pixels_(to.block_w), colours_(to.in_c), channels_(to.channels) {}
  __device__ int rows() const { return rows_; }
  __device__ int pixels() const { return pixels_; }
  __device__ int run() const { return pixels_ * colours_; }
  __device__ int colours() const { return colours_; }
  __device__ int channels() const { return channels_; }

  template <class Value>
  __device__ void write(T* to, bool last, const Value& value) const {
    for (int pixel = 0; pixel < pixels_; ++pixel)
      for (int colour = 0; colour < colours_; ++colour) {
        const auto one = value(pixel, colour);
        *to++ = pack_of<T, 1>(&one).at[0];
      }
    if (!last) return;
    for (int i = rows_ * run(); i < channels_; ++i) *to++ = T{};
  }

 private:
  int rows_, pixels_, colours_, channels_;
};

struct RunGrid {
  dim3 grid, block;  // blockIdx.x: the image
};

// The grid for `images` images. A block of threads handles up to eight rows, so that what it computes about its image
// is shared, but fewer if the GPU would not be full.
inline RunGrid run_grid(const ImageLayout& to, int64_t images) {
  const auto across = static_cast<unsigned>(std::min<int>(to.block_h, kBlockThreads));
  const unsigned wide = std::min(static_cast<unsigned>(to.width), kBlockThreads / across);
  const unsigned tall = std::min({static_cast<unsigned>(to.height), kBlockThreads / (across * wide), 64u});
  const int64_t most = blocks_for(to.height, tall), fewest = blocks_for(to.height, 8 * tall), full = 132 * 8;
  const int64_t parts = std::min<int64_t>(std::clamp(full / std::max<int64_t>(images, 1), fewest, most), 65535);
  return {dim3(static_cast<unsigned>(images), static_cast<unsigned>(parts)), dim3(across, wide, tall)};
}

// Calls function(h, block_row, w) for the rows of blocks of packed pixels (h, w) that the calling thread writes.
template <class Blocks, class Function>
__device__ void for_each_run(const Blocks& blocks, int height, int width, const Function& function) {
  for (int h = static_cast<int>(blockIdx.y * blockDim.z + threadIdx.z); h < height;
       h += static_cast<int>(gridDim.y * blockDim.z))
    for (int row = static_cast<int>(threadIdx.x); row < blocks.rows(); row += static_cast<int>(blockDim.x))
      for (int w = static_cast<int>(threadIdx.y); w < width; w += static_cast<int>(blockDim.y)) function(h, row, w);
}

}  // namespace owt

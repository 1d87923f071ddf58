// A tile of a matrix product on tensor cores, for kernels that use the elements at once instead of storing them.
//   C (height x width) = A' * B, where A is depth x height and B is depth x width
// A and B are row major, in bf16; B may be null: all ones. Sums are f32, and their order depends on the depth only. A
// NaN in a factor reaches every element of C that depends on it.
#pragma once

#include "src/core/elements.cuh"
#include "src/core/mma.cuh"

namespace owt {

constexpr int kTileHeight = 64, kTileWidth = 128;
constexpr unsigned kTileThreads = 256;  // threads of a block, in one dimension

struct TileFactors {
  const __nv_bfloat16 *a, *b;
  int depth, height, width;
};

// The elements of a row of a tile. The padding makes neighbouring rows begin in different banks.
using TileRow = float[kTileWidth + 8];

namespace tile {

constexpr int kDepth = 32;  // rows of A and B in shared memory at a time
constexpr int kSide = 16;   // rows and columns of A and B that a warp multiplies at once
constexpr int kWarpSide = 32, kWarpsAcross = kTileWidth / kWarpSide;
constexpr int kEight = 8;  // elements of 16 bytes
static_assert(kTileHeight / kWarpSide * kWarpsAcross * 32 == kTileThreads);

// kDepth rows of a factor. The padding makes neighbouring rows begin in different banks.
template <int kWide>
using Rows = __nv_bfloat16[kDepth][kWide + kEight];

// kWide columns of a factor, from `left` on; null: all ones. What is outside of the factor counts as 0.
template <int kWide>
class FactorColumns {
 public:
  __device__ FactorColumns(const __nv_bfloat16* factor, int rows, int columns, int left)
      : at_(factor ? factor + left : nullptr),
        rows_(rows),
        columns_(columns),
        left_(columns - left < kWide ? columns - left : kWide) {}

  // Loads this thread's part of the rows from `row` on.
  __device__ void load(int row) {
    if (!aligned()) return;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      loaded_[i] = {};
      if (row + row_of(i) < rows_ && column() < left_)
        loaded_[i] = *reinterpret_cast<const uint4*>(at_ + int64_t{row + row_of(i)} * columns_ + column());
    }
  }
  // Stores what load(row) has loaded. Rows whose packs are not aligned are copied element by element.
  __device__ void store(int row, Rows<kWide>& to) const {
    if (!aligned()) return copy(row, to);
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) *reinterpret_cast<uint4*>(&to[row_of(i)][column()]) = loaded_[i];
  }

 private:
  static constexpr int kPacks = kWide / kEight, kOfThread = kDepth * kPacks / static_cast<int>(kTileThreads);
  static_assert(kDepth * kPacks % kTileThreads == 0);

  __device__ bool aligned() const {
    return at_ && columns_ % kEight == 0 && reinterpret_cast<uintptr_t>(at_) % 16 == 0;
  }
  __device__ static int row_of(int pack) { return (static_cast<int>(threadIdx.x + pack * kTileThreads)) / kPacks; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kPacks * kEight; }

  __device__ void copy(int row, Rows<kWide>& to) const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kDepth * kWide; i += static_cast<int>(kTileThreads)) {
      const bool inside = row + i / kWide < rows_ && i % kWide < left_;
      const bool reads = inside && at_;
      to[i / kWide][i % kWide] =
          reads ? at_[int64_t{row + i / kWide} * columns_ + i % kWide] : __float2bfloat16(inside ? 1.0f : 0.0f);
    }
  }

  const __nv_bfloat16* at_;
  int rows_, columns_, left_;  // left_: columns of the factor from `left` on, at most kWide
  uint4 loaded_[kOfThread];    // eight elements each, in registers
};

struct alignas(16) Factors {
  Rows<kTileHeight> a;
  Rows<kTileWidth> b;
};

// The sums take the place of the factors.
union Memory {
  Factors factors[2];
  TileRow sums[kTileHeight];
};

// The part of the tile that a warp computes.
class WarpSums {
 public:
  __device__ static int row() { return static_cast<int>(threadIdx.x) / 32 / kWarpsAcross * kWarpSide; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) / 32 % kWarpsAcross * kWarpSide; }

  // depth: the number of rows that count; the rows up to the next multiple of kSide are 0.
  __device__ void add(const Factors& factors, int depth) {
#pragma unroll
    for (int k = 0; k < kDepth; k += kSide) {
      if (k >= depth) break;
      uint32_t a[kParts][4], b[kParts][4];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        load_transposed(&factors.a[k + lane_row()][row() + i * kSide + lane_column()], a[i]);
        load_transposed(&factors.b[k + lane_row()][column() + i * kSide + lane_column()], b[i]);
      }
#pragma unroll
      for (int i = 0; i < kParts; ++i)
#pragma unroll
        for (int j = 0; j < kParts; ++j) {
          mma_16x8x16(a[i], {b[j][0], b[j][2]}, sums_[i][j][0]);
          mma_16x8x16(a[i], {b[j][1], b[j][3]}, sums_[i][j][1]);
        }
    }
  }

  __device__ void store(TileRow* sums) const {
    const int top = row() + lane() / 4, left = column() + 2 * (lane() % 4);
#pragma unroll
    for (int i = 0; i < kParts; ++i)
#pragma unroll
      for (int j = 0; j < 2 * kParts; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto& of = sums_[i][j / 2][j % 2];
          *reinterpret_cast<float2*>(&sums[top + i * kSide + 8 * half][left + 8 * j]) = {of[2 * half],
                                                                                         of[2 * half + 1]};
        }
  }

 private:
  static constexpr int kParts = kWarpSide / kSide;

  // load_transposed() loads kSide rows and columns as four matrices: upper left, upper right, lower left, lower right.
  // These are the parts of mma's A for A'. For B they are the upper and lower parts of two of mma's B, side by side.
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int lane_row() { return lane() % 8 + lane() / 16 * 8; }
  __device__ static int lane_column() { return lane() / 8 % 2 * 8; }

  float sums_[kParts][kParts][2][4] = {};
};

}  // namespace tile

// Computes C[top + i, left + j] for the elements of a tile that are in C. All kTileThreads threads of a block call it,
// once; it ends with a barrier. The result is in shared memory.
__device__ inline const TileRow* multiply_tile(const TileFactors& of, int top, int left) {
  __shared__ tile::Memory memory;
  tile::FactorColumns<kTileHeight> a(of.a, of.depth, of.height, top);
  tile::FactorColumns<kTileWidth> b(of.b, of.depth, of.width, left);
  const auto load = [&](int row) { a.load(row), b.load(row); };
  const auto store = [&](int row, tile::Factors& to) { a.store(row, to.a), b.store(row, to.b); };
  tile::WarpSums sums;
  const bool works = top + sums.row() < of.height && left + sums.column() < of.width;
  load(0);
  store(0, memory.factors[0]);
  __syncthreads();
  int buffer = 0;
  for (int row = 0; row < of.depth; row += tile::kDepth) {
    load(row + tile::kDepth);  // arrives while these rows are multiplied
    if (works) sums.add(memory.factors[buffer], of.depth - row);
    buffer = 1 - buffer;
    store(row + tile::kDepth, memory.factors[buffer]);
    __syncthreads();
  }
  if (works) sums.store(memory.sums);
  __syncthreads();
  return memory.sums;
}

}  // namespace owt

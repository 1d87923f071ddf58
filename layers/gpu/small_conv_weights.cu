#include "layers/gpu/small_conv_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/gpu/last_block.cuh"
#include "layers/gpu/small_conv.cuh"
#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/core/mma.cuh"
#include "src/system/check.h"

namespace owt {
namespace {

// A block has kSliceTiles x 16 channels of y. The order of the sums shall be the same on every GPU, so there are as
// many blocks as the largest GPUs run at once.
constexpr int kSliceTiles = 2, kSlice = 16 * kSliceTiles, kSlicePixel = kSlice + kBankShift;
constexpr int kBlocksOfSums = 132 * kSmallConvResident;
constexpr int64_t kMostTileBytes = 112 << 10;  // so that two blocks fit on a multiprocessor

__host__ __device__ inline int tile_columns(const SmallConvWeightsShape& g) { return g.out_w + g.kernel_w - 1; }
// Products side by side: each has 8 channels of x at one column of the kernel.
__host__ __device__ inline int products_of_row(const SmallConvWeightsShape& g) { return g.kernel_w * (g.depth / 8); }
// The elements of a tile of x, and kernel_w pixels of zeros after it.
__host__ __device__ inline int tile_elements(const SmallConvWeightsShape& g) {
  return (g.tile_rows * tile_columns(g) + g.kernel_w) * g.pixel;
}
__host__ __device__ inline int padded_pixels(const SmallConvWeightsShape& g) {
  return static_cast<int>(rounded_up(int64_t{g.tile_rows} * g.out_w, kProductDepth));
}
// The sums of a warp, with this many products side by side.
__host__ __device__ constexpr int sums_of_warp(int products) { return kSliceTiles * products * 4 * 32; }

// The sum over `count` blocks of element `e` of their sums.
__device__ inline float sum_of_blocks(const float* sums, int count, int64_t stride, int e) {
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < count; ++i) sum += sums[i * stride + e];
  return sum;
}

// grad = beta * grad + the gradient. Block (group, u, slice) sums, over the tiles of its group, the products for row u
// of the kernel and kSlice channels of y: dy, transposed, times the pixels of x under that row.
template <int kProducts, class Grad>
__global__ void __launch_bounds__(kSmallConvThreads, kSmallConvResident)
    small_conv_weights(SmallConvWeightsShape g, const SmallElement* x, const SmallElement* dy, float* workspace,
                       unsigned* arrived, float beta, Grad* grad) {
  wait_for_previous_kernel();
  constexpr int kSums = sums_of_warp(kProducts), kPairs = (kProducts + 1) / 2;
  const int group = static_cast<int>(blockIdx.x), u = static_cast<int>(blockIdx.y),
            slice = static_cast<int>(blockIdx.z);
  const int columns = tile_columns(g), row_products = products_of_row(g), packs = g.depth / 8;
  int* windows = dynamic_shared<int>();  // where the pixels under the kernel's first column are in the tile
  auto* x_tile = reinterpret_cast<SmallElement*>(windows + padded_pixels(g));
  SmallElement* dy_tile = x_tile + tile_elements(g);
  const int zeros = g.tile_rows * columns * g.pixel;

  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int part = warp % g.parts, share = warp / g.parts, shares = kSmallConvWarps / g.parts;
  for (int i = thread; i < g.tile_rows * g.out_w; i += kSmallConvThreads)
    windows[i] = (i / g.out_w * columns + i % g.out_w) * g.pixel;
  for (int i = thread; i < g.kernel_w * g.pixel; i += kSmallConvThreads) x_tile[zeros + i] = SmallElement{};

  // Lanes 0 to 15 give the pixels of a step for the first product of a pair, the others for the second.
  int factors[kPairs];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int product = part * kProducts + 2 * j + lane / 16;
    factors[j] = product < row_products ? product / packs * g.pixel + product % packs * 8 : 0;
  }
  float sums[kSliceTiles][kProducts][4] = {};
  const TilePixels of_x{g.in_h, g.in_w, g.in_c, g.depth, g.pixel};
  const int first = group * g.items_of_block, last = min(g.items, first + g.items_of_block);
  for (int item = first; item < last; ++item) {
    const int64_t image = item / g.tiles;
    const int first_row = item % g.tiles * g.tile_rows, rows = min(g.tile_rows, g.out_h - first_row);
    const int pixels = rows * g.out_w, steps = (pixels + kProductDepth - 1) / kProductDepth;
    const TilePixels of_dy{1, pixels, g.out_c, kSlice, kSlicePixel};
    const SmallElement* from = dy + (image * g.out_h + first_row) * g.out_w * g.out_c + slice * kSlice;
    __syncthreads();  // all have read the tiles before
    load_pixels(of_x, x + image * g.in_h * g.in_w * g.in_c, g.in_c, first_row - g.top + u, -g.left, rows, columns,
                x_tile);
    load_pixels(of_dy, from, g.out_c - slice * kSlice, 0, 0, 1, steps * kProductDepth, dy_tile);
    __syncthreads();
    for (int step = share; step < steps && share < shares; step += shares) {
      uint32_t a[kSliceTiles][4], b[kPairs][4];
      const SmallElement* of_step =
          dy_tile + (step * kProductDepth + lane % 8 + lane / 16 * 8) * kSlicePixel + lane / 8 % 2 * 8;
#pragma unroll
      for (int i = 0; i < kSliceTiles; ++i) load_transposed(of_step + 16 * i, a[i]);
      const int pixel = step * kProductDepth + lane % 16;
      const SmallElement* window = x_tile + (pixel < pixels ? windows[pixel] : zeros);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) load_transposed(window + factors[j], b[j]);
#pragma unroll
      for (int i = 0; i < kSliceTiles; ++i)
#pragma unroll
        for (int j = 0; j < kProducts; ++j) {
          const uint32_t of_product[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
          mma_16x8x16(a[i], of_product, sums[i][j]);
        }
    }
  }

  // The warps that share the terms of a part add their sums.
  auto* of_warps = reinterpret_cast<float*>(x_tile);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSliceTiles * kProducts * 4; ++i)
    of_warps[warp * kSums + i * 32 + lane] = sums[i / 4 / kProducts][i / 4 % kProducts][i % 4];
  __syncthreads();
  const int count = g.parts * kSums, column = slice * g.kernel_h + u;
  float* of_column = workspace + int64_t{column} * g.groups * count;
  for (int i = thread; i < count; i += kSmallConvThreads)
    of_column[int64_t{group} * count + i] = sum_of_blocks(of_warps, shares, count, i);

  const int team = group / g.groups_of_team, first_group = team * g.groups_of_team;
  const int members = min(g.groups_of_team, g.groups - first_group);
  unsigned* counters = arrived + column * (g.teams + 1);
  if (!arrives_last(counters + team, static_cast<unsigned>(members))) return;
  float* of_team = of_column + int64_t{first_group} * count;
  for (int i = thread; i < count; i += kSmallConvThreads) of_team[i] = sum_of_blocks(of_team, members, count, i);
  if (!arrives_last(counters + g.teams, static_cast<unsigned>(g.teams))) return;
  for (int i = thread; i < count; i += kSmallConvThreads) {
    const int of_lane = i % 32, of_sum = i / 32 % 4, tile = i / 128 % (kSliceTiles * kProducts);
    const int product = i / kSums * kProducts + tile % kProducts;
    const int out = slice * kSlice + tile / kProducts * 16 + of_sum / 2 * 8 + of_lane / 4;
    const int in = product % packs * 8 + of_lane % 4 * 2 + of_sum % 2;
    if (product >= row_products || out >= g.out_c || in >= g.weight_ins) continue;
    Grad& to = grad[((out * g.kernel_h + u) * g.kernel_w + product / packs) * g.weight_ins + in];
    const float sum = sum_of_blocks(of_column, g.teams, int64_t{g.groups_of_team} * count, i);
    to = from_float<Grad>((beta == 0 ? 0 : beta * to_float(to)) + sum);
  }
}

}  // namespace

std::optional<SmallConvWeights> SmallConvWeights::gradient(const ConvGeometry& geometry, int64_t x_channels,
                                                           int64_t rows, DType dtype) {
  if (!is_small_conv(geometry, dtype)) return {};
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  SmallConvWeightsShape g{};
  g.in_h = number(geometry.in_h), g.in_w = number(geometry.in_w), g.in_c = number(x_channels);
  g.out_h = number(geometry.out_h), g.out_w = number(geometry.out_w), g.out_c = number(geometry.out_c);
  g.kernel_h = number(geometry.kernel_h), g.kernel_w = number(geometry.kernel_w);
  g.top = number(geometry.top), g.left = number(geometry.left), g.weight_ins = number(geometry.in_c);
  g.depth = number(x_channels <= 8 ? 8 : rounded_up(x_channels, kProductDepth));
  g.pixel = g.depth < kProductDepth ? g.depth : g.depth + kBankShift;
  SmallConvWeights conv(g);
  conv.choose_parts();
  if (conv.shape_.parts == 0) return {};
  const int64_t most_bytes =
      std::min<int64_t>(kMostTileBytes, attribute_of_gpu(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  for (int tile_rows = g.out_h; tile_rows > 0; --tile_rows) {
    SmallConvWeightsShape& to = conv.shape_;
    to.tiles = (g.out_h + tile_rows - 1) / tile_rows;
    to.tile_rows = (g.out_h + to.tiles - 1) / to.tiles;
    if (conv.shared_bytes() > most_bytes) continue;
    if (rows * to.tiles > std::numeric_limits<int>::max()) return {};
    to.items = number(rows * to.tiles);
    const int blocks = std::max(1, kBlocksOfSums / number(conv.columns()));
    to.items_of_block = (to.items + blocks - 1) / blocks;
    to.groups = (to.items + to.items_of_block - 1) / to.items_of_block;
    to.groups_of_team = static_cast<int>(std::ceil(std::sqrt(to.groups)));
    to.teams = (to.groups + to.groups_of_team - 1) / to.groups_of_team;
    conv.arrived_ = arrival_counters(conv.columns() * (to.teams + 1));
    return conv;
  }
  return {};
}

// The width of the parts with which most warps have most work; no parts if there are more than warps.
void SmallConvWeights::choose_parts() {
  const int products = products_of_row(shape_);
  double best = 0;
  for (const int width : {5, 6}) {
    const int parts = (products + width - 1) / width;
    if (parts > kSmallConvWarps) continue;
    const double used = static_cast<double>(products) / width * (kSmallConvWarps / parts);
    if (used > best) best = used, products_ = width, shape_.parts = parts;
  }
}

int64_t SmallConvWeights::columns() const { return shape_.kernel_h * rounded_up(shape_.out_c, kSlice) / kSlice; }

int64_t SmallConvWeights::shared_bytes() const {
  const int64_t pixels = padded_pixels(shape_);
  const int64_t tiles = static_cast<int64_t>(sizeof(SmallElement)) * (tile_elements(shape_) + pixels * kSlicePixel);
  const int64_t sums = static_cast<int64_t>(sizeof(float)) * kSmallConvWarps * sums_of_warp(products_);
  return pixels * static_cast<int64_t>(sizeof(int)) + std::max(tiles, sums);
}

int64_t SmallConvWeights::workspace_bytes() const {
  return columns() * shape_.groups * shape_.parts * sums_of_warp(products_) * static_cast<int64_t>(sizeof(float));
}

void SmallConvWeights::queue(const void* x, const void* dy, float beta, Tensor& grad, void* workspace,
                             const Stream& stream) const {
  const auto queue_as = [&](auto kernel, auto* to) {
    const dim3 grid(static_cast<unsigned>(shape_.groups), static_cast<unsigned>(shape_.kernel_h),
                    static_cast<unsigned>(columns() / shape_.kernel_h));
    Tensor arrived = arrived_;
    launch_sharing(shared_bytes(), kernel, grid, dim3(kSmallConvThreads), stream, shape_,
                   static_cast<const SmallElement*>(x), static_cast<const SmallElement*>(dy),
                   static_cast<float*>(workspace), static_cast<unsigned*>(arrived.raw()), beta, to);
  };
  with_element(grad.dtype(), [&](auto element) {
    using Grad = decltype(element);
    if (products_ == 5)
      queue_as(small_conv_weights<5, Grad>, grad.data<Grad>());
    else
      queue_as(small_conv_weights<6, Grad>, grad.data<Grad>());
  });
}

}  // namespace owt

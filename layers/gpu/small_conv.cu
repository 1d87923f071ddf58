#include "layers/gpu/small_conv.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "layers/gpu/small_conv.cuh"
#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/core/mma.cuh"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int kLeastPixels = 64;  // a block takes at least these, even if multiprocessors then have no work
constexpr int kQuad = 4;          // neighbouring terms of a sum that are neighbours in a pixel

// Elements between the rows of the weights in shared memory.
__host__ __device__ inline int weight_stride(const SmallConvShape& g) { return g.steps * kProductDepth + kBankShift; }
__host__ __device__ inline int tile_columns(const SmallConvShape& g) { return g.out_w + g.kernel_w - 1; }

// The row in shared memory of the weights for a channel of y. Lane 4 * g + t of a warp gets columns 2t and 2t + 1 of
// each product. Its kChannels products give it 2 * kChannels neighbouring channels, so that it stores them together.
template <int kChannels>
__device__ int weight_row(int channel) {
  const int first = channel / (8 * kChannels) * (8 * kChannels), at = channel - first;
  return first + at / 2 % kChannels * 8 + at / (2 * kChannels) * 2 + at % 2;
}

// Writes the weights for `channels` channels of y, with zeros where there are none.
template <int kChannels, int kWidth>
__device__ void load_weights(const SmallConvShape& g, const SmallElement* weights, int channels, SmallElement* shared) {
  using Weights = Pack<SmallElement, kWidth>;
  const int terms = g.steps * kProductDepth, taps = g.kernel_h * g.kernel_w, stride = weight_stride(g);
  if (!g.transposed) {
    const int packs = terms / kWidth;
    move_items(
        channels * packs,
        [&](int i) {
          const int out = i / packs, term = i % packs * kWidth, tap = term / g.depth, in = term % g.depth;
          if (out >= g.weight_outs || tap >= taps || in >= g.weight_ins) return Weights{};
          return load_pack<SmallElement, kWidth>(weights + (out * taps + tap) * g.weight_ins + in);
        },
        [&](int i, const Weights& pack) {
          store_pack(shared + weight_row<kChannels>(i / packs) * stride + i % packs * kWidth, pack);
        });
  } else {
    move_items(
        channels / kWidth * terms,
        [&](int i) {
          const int in = i / terms * kWidth, term = i % terms, tap = term / g.depth, out = term % g.depth;
          if (out >= g.weight_outs || tap >= taps || in >= g.weight_ins) return Weights{};
          return load_pack<SmallElement, kWidth>(weights + (out * taps + taps - 1 - tap) * g.weight_ins + in);
        },
        [&](int i, const Weights& pack) {
          for (int j = 0; j < kWidth; ++j)
            shared[weight_row<kChannels>(i / terms * kWidth + j) * stride + i % terms] = pack.at[j];
        });
  }
}

// Where the terms of a sum are, as offsets from the first pixel of a window. Lane 4 * g + t takes the terms 2t, 2t + 1,
// 2t + 8 and 2t + 9 of each step, which are in the quads t / 2 and t / 2 + 2.
__device__ inline void fill_offsets(const SmallConvShape& g, int2* offsets) {
  const int columns = tile_columns(g);
  for (int quad = static_cast<int>(threadIdx.x); quad < g.steps * kProductDepth / kQuad; quad += kSmallConvThreads) {
    const int tap = quad * kQuad / g.depth, channel = quad * kQuad % g.depth;
    const bool exists = tap < g.kernel_h * g.kernel_w;
    const int offset = exists ? (tap / g.kernel_w * columns + tap % g.kernel_w) * g.pixel + channel : 0;
    int2& of_lane = offsets[quad / 4 * 2 + quad % 2];
    (quad % 4 < 2 ? of_lane.x : of_lane.y) = offset;
  }
}

__device__ inline uint32_t two_at(const SmallElement* at) { return *reinterpret_cast<const uint32_t*>(at); }

// y = x * weights + bias. A warp computes 16 * kPixels pixels of 8 * kChannels channels at a time.
template <int kPixels, int kChannels>
__global__ void __launch_bounds__(kSmallConvThreads, kSmallConvResident)
    small_conv(SmallConvShape g, int items, const SmallElement* x, const SmallElement* weights, const float* bias,
               bool relu, SmallElement* y) {
  wait_for_previous_kernel();
  constexpr int kGroup = 8 * kChannels, kRun = 2 * kChannels;  // channels of a warp and of a lane
  const int groups = (g.out_c + kGroup - 1) / kGroup, stride = weight_stride(g), columns = tile_columns(g);
  auto* offsets = dynamic_shared<int2>();
  auto* shared_weights = reinterpret_cast<SmallElement*>(offsets + 2 * g.steps);
  SmallElement* tile = shared_weights + groups * kGroup * stride;

  fill_offsets(g, offsets);
  if (g.weight_ins % kPacked == 0)
    load_weights<kChannels, kPacked>(g, weights, groups * kGroup, shared_weights);
  else
    load_weights<kChannels, 1>(g, weights, groups * kGroup, shared_weights);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int lane_row = lane / 4, lane_column = lane % 4;
  const int quads = g.kernel_h * g.kernel_w * g.depth / kQuad;
  const TilePixels image_of{g.in_h, g.in_w, g.in_c, g.depth, g.pixel};
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int64_t image = item / g.tiles;
    const int first_row = item % g.tiles * g.tile_rows, rows = min(g.tile_rows, g.out_h - first_row);
    const int pixels = rows * g.out_w, parts = (pixels + 16 * kPixels - 1) / (16 * kPixels) * groups;
    const SmallElement* from = x + image * g.in_h * g.in_w * g.in_c;
    SmallElement* to = y + (image * g.out_h + first_row) * g.out_w * g.out_c;
    __syncthreads();  // all have read the tile before
    load_pixels(image_of, from, g.in_c, first_row - g.top, -g.left, rows + g.kernel_h - 1, columns, tile);
    __syncthreads();

    for (int part = warp; part < parts; part += kSmallConvWarps) {
      const int first = part / groups * 16 * kPixels, group = part % groups * kGroup;
      const int channel = group + lane_column * kRun;
      const SmallElement* factors = shared_weights + (group + lane_row) * stride + 2 * lane_column;
      const SmallElement* windows[kPixels][2];
      float sums[kPixels][kChannels][4];
#pragma unroll
      for (int i = 0; i < kPixels; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int pixel = first + 16 * i + 8 * half + lane_row, shown = pixel < pixels ? pixel : 0;
          windows[i][half] =
              tile + (shown / g.out_w * columns + shown % g.out_w) * g.pixel + lane_column % 2 * (kQuad / 2);
#pragma unroll
          for (int j = 0; j < kRun; ++j)
            sums[i][j / 2][2 * half + j % 2] = bias && channel + j < g.out_c ? bias[channel + j] : 0;
        }
      // The last step may have terms that do not exist: their weights are 0, and an infinite x times 0 would be NaN.
      const auto add_step = [&](int step, auto is_last) {
        const int2 offset = offsets[2 * step + lane_column / 2];
        const int quad = 4 * step + lane_column / 2;
        uint32_t a[kPixels][4], b[kChannels][2];
#pragma unroll
        for (int i = 0; i < kPixels; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            a[i][half] = !is_last || quad < quads ? two_at(windows[i][half] + offset.x) : 0;
            a[i][half + 2] = !is_last || quad + 2 < quads ? two_at(windows[i][half] + offset.y) : 0;
          }
#pragma unroll
        for (int j = 0; j < kChannels; ++j) {
          b[j][0] = two_at(factors + 8 * j * stride + step * kProductDepth);
          b[j][1] = two_at(factors + 8 * j * stride + step * kProductDepth + 8);
        }
#pragma unroll
        for (int i = 0; i < kPixels; ++i)
#pragma unroll
          for (int j = 0; j < kChannels; ++j) mma_16x8x16(a[i], b[j], sums[i][j]);
      };
#pragma unroll 2
      for (int step = 0; step + 1 < g.steps; ++step) add_step(step, std::false_type());
      add_step(g.steps - 1, std::true_type());

#pragma unroll
      for (int i = 0; i < kPixels; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int pixel = first + 16 * i + 8 * half + lane_row;
          if (pixel >= pixels) continue;
          Pack<SmallElement, kRun> run;
          for (int j = 0; j < kRun; ++j) {
            const float sum = sums[i][j / 2][2 * half + j % 2];
            run.at[j] = from_float<SmallElement>(relu && sum < 0 ? 0 : sum);
          }
          SmallElement* at = to + pixel * g.out_c + channel;
          if (g.out_c % kRun == 0 && channel < g.out_c) store_pack(at, run);
          if (g.out_c % kRun == 0) continue;
          for (int j = 0; j < kRun; ++j)
            if (channel + j < g.out_c) at[j] = run.at[j];
        }
    }
  }
}

}  // namespace

std::optional<SmallConv> SmallConv::forward(const ConvGeometry& geometry, int64_t x_channels, int64_t rows,
                                            DType dtype) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  SmallConvShape shape{};
  shape.in_h = number(geometry.in_h), shape.in_w = number(geometry.in_w), shape.in_c = number(x_channels);
  shape.out_h = number(geometry.out_h), shape.out_w = number(geometry.out_w), shape.out_c = number(geometry.out_c);
  shape.top = number(geometry.top), shape.left = number(geometry.left);
  return fitted(shape, rows, geometry, dtype);
}

std::optional<SmallConv> SmallConv::data_gradient(const ConvGeometry& geometry, int64_t rows, DType dtype) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  SmallConvShape shape{};
  shape.in_h = number(geometry.out_h), shape.in_w = number(geometry.out_w), shape.in_c = number(geometry.out_c);
  shape.out_h = number(geometry.in_h), shape.out_w = number(geometry.in_w), shape.out_c = number(geometry.in_c);
  shape.top = number(geometry.kernel_h - 1 - geometry.top), shape.left = number(geometry.kernel_w - 1 - geometry.left);
  shape.transposed = true;
  return fitted(shape, rows, geometry, dtype);
}

std::optional<SmallConv> SmallConv::fitted(SmallConvShape shape, int64_t rows, const ConvGeometry& geometry,
                                           DType dtype) {
  if (!is_small_conv(geometry, dtype)) return {};
  shape.kernel_h = static_cast<int>(geometry.kernel_h), shape.kernel_w = static_cast<int>(geometry.kernel_w);
  shape.weight_outs = static_cast<int>(geometry.out_c), shape.weight_ins = static_cast<int>(geometry.in_c);
  const int64_t depth = small_conv_depth(shape.in_c);
  const int64_t terms = geometry.kernel_h * geometry.kernel_w * depth;
  const int64_t most_shared = attribute_of_gpu(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (terms > most_shared) return {};
  shape.depth = static_cast<int>(depth);
  shape.pixel = static_cast<int>(depth < kProductDepth ? depth : depth + kBankShift);
  shape.steps = static_cast<int>((terms + kProductDepth - 1) / kProductDepth);

  SmallConv conv(shape, rows);
  const int multiprocessors = attribute_of_gpu(cudaDevAttrMultiProcessorCount);
  for (int tile_rows = std::max(1, std::min(shape.out_h, kTilePixels / shape.out_w)); tile_rows > 0; --tile_rows) {
    conv.shape_.tiles = (shape.out_h + tile_rows - 1) / tile_rows;
    conv.shape_.tile_rows = (shape.out_h + conv.shape_.tiles - 1) / conv.shape_.tiles;
    const bool idle = rows * conv.shape_.tiles < multiprocessors && (tile_rows - 1) * shape.out_w >= kLeastPixels;
    conv.choose_parts();
    if (idle || conv.shared_bytes() > most_shared) continue;
    if (rows * conv.shape_.tiles > std::numeric_limits<int>::max()) return {};
    const int64_t of_multiprocessor = attribute_of_gpu(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    const int64_t resident =
        std::min<int64_t>(kSmallConvResident, of_multiprocessor / (conv.shared_bytes() + kReserved));
    conv.blocks_ = multiprocessors * std::max<int64_t>(resident, 1);
    return conv;
  }
  return {};
}

// The largest part with which all warps of a block have work.
void SmallConv::choose_parts() {
  const int pixels = (shape_.tile_rows * shape_.out_w + 15) / 16, channels = (shape_.out_c + 7) / 8;
  for (const auto& [of_pixels, of_channels] : {std::pair{2, 4}, {1, 4}, {1, 2}}) {
    pixels_ = of_pixels, channels_ = of_channels;
    if ((pixels + pixels_ - 1) / pixels_ * ((channels + channels_ - 1) / channels_) >= kSmallConvWarps) return;
  }
}

int64_t SmallConv::shared_bytes() const {
  const SmallConvShape& g = shape_;
  const int64_t offsets = 2 * static_cast<int64_t>(sizeof(int2)) * g.steps;
  const int64_t weights = rounded_up(g.out_c, 8 * channels_) * weight_stride(g);
  const int64_t tile = int64_t{g.tile_rows + g.kernel_h - 1} * tile_columns(g) * g.pixel;
  return offsets + static_cast<int64_t>(sizeof(SmallElement)) * (weights + tile);
}

void SmallConv::queue(const void* x, const void* weights, const float* bias, bool relu, void* y,
                      const Stream& stream) const {
  const auto queue_as = [&](auto kernel) {
    const int64_t items = rows_ * shape_.tiles;
    launch_sharing(shared_bytes(), kernel, dim3(static_cast<unsigned>(std::min(items, blocks_))),
                   dim3(kSmallConvThreads), stream, shape_, items, static_cast<const SmallElement*>(x),
                   static_cast<const SmallElement*>(weights), bias, relu, static_cast<SmallElement*>(y));
  };
  if (pixels_ == 2)
    queue_as(small_conv<2, 4>);
  else if (channels_ == 4)
    queue_as(small_conv<1, 4>);
  else
    queue_as(small_conv<1, 2>);
}

}  // namespace owt

// Code shared by the passes of depthwise_conv.h: blocks of channels, and the windows of tiles of outputs.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "layers/conv_cpu/conv_pass.h"
#include "layers/conv_cpu/micro_gemm.h"

namespace owt::depthwise {

// Channels that are computed together, each in a lane. Two f32 vectors hold neighbouring channels; two vectors from
// bf16 hold the even and the odd channels, which one instruction each converts to f32.
struct ChannelBlock {
  int64_t first;  // channel
  int vectors;    // 1 or 2
  int64_t lanes;  // lanes in use of a vector: kLanes, or all channels if there are fewer
  int64_t place;  // number of lanes in the blocks before it
  int64_t known;  // number of its channels that also belong to the block before
};

struct Blocks {
  explicit Blocks(int64_t channels);

  std::span<const ChannelBlock> doubles() const { return {all.data(), doubled}; }
  std::span<const ChannelBlock> singles() const { return {all.data() + doubled, all.size() - doubled}; }

  std::vector<ChannelBlock> all;
  size_t doubled = 0;  // number of blocks with two vectors, which come first
  int64_t lanes = 0;   // total of all blocks
};

// Calls visit(channel, lane of the block) for each channel of a block of images of Element.
template <class Element, class Visit>
void for_each_lane(const ChannelBlock& block, const Visit& visit) {
  const int64_t channels = block.vectors * block.lanes;
  const bool in_turns = sizeof(Element) < sizeof(float) && block.vectors == 2;
  for (int64_t c = 0; c < channels; ++c) visit(block.first + c, in_turns ? c % 2 * kLanes + c / 2 : c);
}

template <int kVectors, class Lanes>
[[gnu::always_inline]] inline void load_block(const float* from, Lanes lanes, Vector (&to)[kVectors]) {
  for (int i = 0; i < kVectors; ++i) to[i] = load(from + i * kLanes, lanes);
}
template <int kVectors, class Lanes>
[[gnu::always_inline]] inline void load_block(const Bf16* from, Lanes lanes, Vector (&to)[kVectors]) {
  if constexpr (kVectors == 1) {
    to[0] = load(from, lanes);
  } else {
    VectorU32 pairs;
    std::memcpy(&pairs, from, sizeof pairs);
    to[0] = reinterpret_cast<Vector>(pairs << 16);
    to[1] = reinterpret_cast<Vector>(pairs & 0xffff0000);
  }
}

template <int kVectors, class Lanes>
[[gnu::always_inline]] inline void store_block(const Vector (&from)[kVectors], Lanes lanes, float* to) {
  for (int i = 0; i < kVectors; ++i) store(from[i], to + i * kLanes, lanes);
}
template <int kVectors, class Lanes>
[[gnu::always_inline]] inline void store_block(const Vector (&from)[kVectors], Lanes lanes, Bf16* to) {
  if constexpr (kVectors == 1) {
    store(from[0], to, lanes);
  } else {
    const VectorU32 pairs = bf16_pairs(from[0], from[1]);
    std::memcpy(to, &pairs, sizeof pairs);
  }
}

// Maps source pixels to target pixels. Output (i, j) is computed from the window of kernel_h x kernel_w pixels that
// begins at row i * stride_h - top and column j * stride_w - left of the source. A forward pass has one phase; backward
// data has one for each remainder of the strides.
struct OutputPhase {
  int64_t kernel_h, kernel_w, stride_h, stride_w, top, left;
  int64_t rows, columns;      // number of outputs
  int64_t to_row, to_column;  // position of output (0, 0) in the target
  int64_t step_h, step_w;     // distance between outputs in the target
  int64_t tap;                // index of the first of its kernel_h * kernel_w taps in the taps of all phases
};
inline OutputPhase forward_phase(const ConvGeometry& g) {
  return {g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.top, g.left, g.out_h, g.out_w, 0, 0, 1, 1, 0};
}

struct ImageSize {
  int64_t height, width, channels;
  int64_t elements() const { return height * width * channels; }
};

// The windows of neighbouring outputs of row i, starting at column j. Pixels outside the source are not read.
template <class Element>
struct Windows {
  Windows(const OutputPhase& phase, const ImageSize& source, const Element* image, int64_t i, int64_t j,
          int64_t outputs)
      : image(image), row(source.width * source.channels), column(source.channels) {
    const int64_t y = i * phase.stride_h - phase.top, x = j * phase.stride_w - phase.left,
                  width = (outputs - 1) * phase.stride_w + phase.kernel_w;
    begin = y * row + x * column;
    top = std::max<int64_t>(0, -y);
    bottom = std::min(phase.kernel_h, source.height - y);
    left = std::max<int64_t>(0, -x);
    right = std::min(width, source.width - x);
  }

  const Element* image;
  int64_t row, column;               // elements between neighbouring rows and columns
  int64_t begin;                     // element at row 0 and column 0 of the windows; may lie outside the source
  int64_t top, bottom, left, right;  // rows [top, bottom) and columns [left, right) lie inside the source
};

// A tile: neighbouring outputs that are computed together. The width and stride of windows are compile-time constants.
template <int kWidthIs, int kStrideIs, int kColumnsIs = 0, int kVectorsIs = 0>
struct Tile {
  static constexpr int kWidth = kWidthIs, kStride = kStrideIs;        // width and stride of a window
  static constexpr int kColumns = kColumnsIs, kVectors = kVectorsIs;  // number of outputs; vectors of their block
  static constexpr int kInputs = (kColumns - 1) * kStride + kWidth;   // columns of all windows
  template <int kOutputs, int kOfBlock>
  using Of = Tile<kWidth, kStride, kOutputs, kOfBlock>;

  static bool suits(const OutputPhase& phase) { return phase.kernel_w == kWidth && phase.stride_w == kStride; }
};
using KnownTiles = std::tuple<Tile<1, 1>, Tile<2, 1>, Tile<3, 1>, Tile<5, 1>, Tile<7, 1>, Tile<3, 2>, Tile<5, 2>>;

// kMostColumns: the most outputs whose sums fit into the registers with a row of weights and a pixel (two vectors
// each). kFewestColumns: the fewest outputs of a tile in a longer row.
inline constexpr int kMostColumns = kRegisters == 32 ? 7 : 4, kFewestColumns = (kMostColumns + 1) / 2;

// Calls multiply(pixel, v, j) for every pixel in row u of the windows of a tile, and for each output j whose window has
// the pixel in column v.
template <class Tile, class Element, class Multiply>
[[gnu::always_inline]] inline void for_each_pixel(Tile, const Windows<Element>& windows, int64_t u,
                                                  const ChannelBlock& block, const Multiply& multiply) {
  const int64_t at = windows.begin + u * windows.row + block.first;
#pragma GCC unroll 32
  for (int k = 0; k < Tile::kInputs; ++k)
    if (k >= windows.left && k < windows.right) {
      Vector pixel[Tile::kVectors];
      load_block(windows.image + (at + k * windows.column), AllLanes{}, pixel);
#pragma GCC unroll 8
      for (int v = 0; v < Tile::kWidth; ++v)
        if (const int j = k - v; j >= 0 && j % Tile::kStride == 0 && j / Tile::kStride < Tile::kColumns)
          multiply(pixel, v, j / Tile::kStride);
    }
}

// Prefetches a block of each of kColumns pixels into the second-level cache; they may lie after the end of the images.
// The hardware prefetcher does not recognise this access pattern. The data is used one row of outputs later, which is
// long enough for a memory access.
enum class Ask { kRead, kWrite };
template <Ask kAsk, int kColumns, int kVectors, class Element>
[[gnu::always_inline]] inline void ask_for(const Element* image, int64_t at, int64_t column) {
#pragma GCC unroll 16
  for (int k = 0; k < kColumns; ++k)
#pragma GCC unroll 2
    for (size_t b = 0; b < kVectors * kLanes * sizeof(Element); b += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(image + (at + k * column)) + b, kAsk == Ask::kWrite, 2);
}
// Prefetches the rows that enter the windows with the next row of outputs.
template <class Tile, class Element>
[[gnu::always_inline]] inline void ask_for_next(Tile, const OutputPhase& phase, const Windows<Element>& windows,
                                                const ChannelBlock& block) {
  for (int64_t u = phase.kernel_h; u < phase.kernel_h + phase.stride_h; ++u)
    ask_for<Ask::kRead, Tile::kColumns * Tile::kStride, Tile::kVectors>(
        windows.image, windows.begin + u * windows.row + block.first, windows.column);
}

template <class Tile, class Element, class Compute>
[[gnu::noinline]] void compute_tile(const Windows<Element>& windows, int64_t first,
                                    std::span<const ChannelBlock> blocks, const Compute& compute) {
  for (const ChannelBlock& block : blocks) compute(Tile{}, windows, first, block);
}

// Computes row i of the outputs of a phase. Calls tile(Tile{}, windows, first column, block) if there is a tile for
// such windows, else output(std::integral_constant<int, vectors>{}, lanes, window, column, block) for each output.
template <class Element, class OfTile, class OfOutput>
void for_each_tile(const OutputPhase& phase, const ImageSize& source, const Element* image, int64_t i,
                   const Blocks& blocks, const OfTile& tile, const OfOutput& output) {
  const auto in_tiles = [&](auto known) {
    using Known = decltype(known);
    if (!Known::suits(phase)) return false;
    in_parts(phase.columns, kMostColumns, [&](int64_t first, int columns) {
      const Windows<Element> windows(phase, source, image, i, first, columns);
      with_constant<kMostColumns, kFewestColumns>(columns, [&](auto count) {
        compute_tile<typename Known::template Of<count, 2>>(windows, first, blocks.doubles(), tile);
        compute_tile<typename Known::template Of<count, 1>>(windows, first, blocks.singles(), tile);
      });
    });
    return true;
  };
  const bool fills = source.channels >= kLanes && phase.columns >= kFewestColumns;
  if (fills && std::apply([&](auto... known) { return (in_tiles(known) || ...); }, KnownTiles{})) return;
  for (int64_t column = 0; column < phase.columns; ++column) {
    const Windows<Element> window(phase, source, image, i, column, 1);
    for (const ChannelBlock& block : blocks.doubles())
      output(std::integral_constant<int, 2>{}, AllLanes{}, window, column, block);
    for (const ChannelBlock& block : blocks.singles())
      output(std::integral_constant<int, 1>{}, block.lanes, window, column, block);
  }
}

// Calls multiply(pixel, tap) for every pixel of a window of any kernel.
template <int kVectors, class Element, class Lanes, class Multiply>
void for_each_tap(const OutputPhase& phase, const Windows<Element>& window, const ChannelBlock& block, Lanes lanes,
                  const Multiply& multiply) {
  for (int64_t u = window.top; u < window.bottom; ++u)
    for (int64_t v = window.left; v < window.right; ++v) {
      Vector pixel[kVectors];
      load_block(window.image + (window.begin + u * window.row + v * window.column) + block.first, lanes, pixel);
      multiply(pixel, u * phase.kernel_w + v);
    }
}

std::unique_ptr<ConvPass> make_convolution(const ConvShape& shape, PassKind kind);  // forward or backward data
std::unique_ptr<ConvPass> make_backward_weights(const ConvShape& shape);

}  // namespace owt::depthwise

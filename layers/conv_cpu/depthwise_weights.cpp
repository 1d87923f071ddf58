#include "layers/conv_cpu/conv_workspace.h"
#include "layers/conv_cpu/depthwise_tiles.h"
#include "src/core/threads.h"

namespace owt::depthwise {
namespace {

// The gradients of weights and bias. Each thread sums the products of its rows of y, tile by tile. The sums of the
// threads are added in the order of the threads.
template <class Element>
class DepthwiseBackwardWeights : public ConvPass {
 public:
  explicit DepthwiseBackwardWeights(const ConvShape& shape)
      : images_(shape.rows),
        phase_(forward_phase(shape.geometry)),
        taps_(phase_.kernel_h * phase_.kernel_w),
        source_{shape.geometry.in_h, shape.geometry.in_w, shape.geometry.in_c},
        blocks_(shape.geometry.in_c),
        threads_(team_size()) {}

  void backward_weights(const void* x, const void* dy, float beta, float* weights, float bias_beta,
                        float* bias) const override {
    const int64_t rows = images_ * phase_.rows, each = blocks_.lanes * (taps_ + 1);
    auto* const sums = static_cast<float*>(
        conv_workspace(ConvBuffer::kScratchpad, static_cast<size_t>(threads_ * each) * sizeof(float)));
    parallel_for(threads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        add_rows(split(rows, static_cast<int>(threads_), static_cast<int>(t)), static_cast<const Element*>(x),
                 static_cast<const Element*>(dy), sums + t * each);
    });
    for (int64_t t = 1; t < threads_; ++t)
      for (int64_t s = 0; s < each; ++s) sums[s] += sums[t * each + s];
    for (const ChannelBlock& block : blocks_.all) finish(block, sums, beta, weights, bias_beta, bias);
  }

 private:
  // sums[block][taps, then the bias][lanes of the block]
  float* sums_of(const ChannelBlock& block, float* sums) const { return sums + block.place * (taps_ + 1); }

  void add_rows(Slice rows, const Element* x, const Element* dy, float* sums) const {
    std::fill_n(sums, blocks_.lanes * (taps_ + 1), 0.0f);
    for (int64_t row = rows.begin; row < rows.end; ++row)
      add_row(x + row / phase_.rows * source_.elements(), row % phase_.rows,
              dy + row * phase_.columns * source_.channels, sums);
  }

  void add_row(const Element* image, int64_t i, const Element* dy, float* sums) const {
    for_each_tile(
        phase_, source_, image, i, blocks_,
        [&](auto tile, const auto& windows, int64_t first, const ChannelBlock& block) __attribute__((always_inline)) {
          this->add_tile(tile, windows, first, block, dy, this->sums_of(block, sums));
        },
        [&](auto vectors, auto lanes, const auto& window, int64_t column, const ChannelBlock& block) {
          this->template add_output<vectors>(window, column, block, lanes, dy, this->sums_of(block, sums));
        });
  }

  template <class Tile>
  [[gnu::always_inline]] void add_tile(Tile tile, const Windows<Element>& windows, int64_t first,
                                       const ChannelBlock& block, const Element* dy_row, float* sums) const {
    constexpr int kVectors = Tile::kVectors, kStep = kVectors * kLanes;
    const int64_t channels = source_.channels, at = first * channels + block.first;
    Vector dy[Tile::kColumns][kVectors], bias[kVectors] = {};
#pragma GCC unroll 8
    for (int j = 0; j < Tile::kColumns; ++j) {
      load_block(dy_row + (at + j * channels), AllLanes{}, dy[j]);
      for (int i = 0; i < kVectors; ++i) bias[i] += dy[j][i];
    }
    add(bias, sums + taps_ * kStep);
    ask_for<Ask::kRead, Tile::kColumns, kVectors>(dy_row, at + phase_.columns * channels, channels);
    ask_for_next(tile, phase_, windows, block);
    sums += windows.top * Tile::kWidth * kStep;
    for (int64_t u = windows.top; u < windows.bottom; ++u, sums += Tile::kWidth * kStep) {
      Vector sum[Tile::kWidth][kVectors] = {};
      for_each_pixel(
          tile, windows, u, block, [&](const Vector(&pixel)[kVectors], int v, int j) __attribute__((always_inline)) {
            for (int i = 0; i < kVectors; ++i) sum[v][i] += pixel[i] * dy[j][i];
          });
#pragma GCC unroll 8
      for (int v = 0; v < Tile::kWidth; ++v) add(sum[v], sums + v * kStep);
    }
  }

  template <int kVectors, class Lanes>
  void add_output(const Windows<Element>& window, int64_t column, const ChannelBlock& block, Lanes lanes,
                  const Element* dy_row, float* sums) const {
    Vector dy[kVectors];
    load_block(dy_row + column * source_.channels + block.first, lanes, dy);
    add(dy, sums + taps_ * kVectors * kLanes);
    for_each_tap<kVectors>(phase_, window, block, lanes, [&](Vector(&pixel)[kVectors], int64_t tap) {
      for (int i = 0; i < kVectors; ++i) pixel[i] *= dy[i];
      add(pixel, sums + tap * kVectors * kLanes);
    });
  }

  template <int kVectors>
  static void add(const Vector (&sum)[kVectors], float* to) {
    for (int i = 0; i < kVectors; ++i) store(load(to + i * kLanes) + sum[i], to + i * kLanes);
  }

  void finish(const ChannelBlock& block, float* sums, float beta, float* weights, float bias_beta, float* bias) const {
    const auto keep = [](float sum, float its_beta, float& total) { total = its_beta == 0 ? sum : total + sum; };
    const float* const of_block = sums_of(block, sums);
    const int64_t lanes = block.vectors * kLanes;
    for_each_lane<Element>(block, [&](int64_t channel, int64_t lane) {
      if (channel < block.first + block.known) return;
      for (int64_t t = 0; t < taps_; ++t) keep(of_block[t * lanes + lane], beta, weights[channel * taps_ + t]);
      if (bias) keep(of_block[taps_ * lanes + lane], bias_beta, bias[channel]);
    });
  }

  int64_t images_;
  OutputPhase phase_;
  int64_t taps_;
  ImageSize source_;
  Blocks blocks_;
  int64_t threads_;
};

}  // namespace

std::unique_ptr<ConvPass> make_backward_weights(const ConvShape& shape) {
  return make_of_element<DepthwiseBackwardWeights>(shape);
}

}  // namespace owt::depthwise

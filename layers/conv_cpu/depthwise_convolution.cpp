#include "layers/conv_cpu/conv_workspace.h"
#include "layers/conv_cpu/depthwise_tiles.h"
#include "src/core/threads.h"

namespace owt::depthwise {
namespace {

// One dimension of backward data. Pixel h of x was multiplied by tap u of the kernel if the stride divides h + pad - u.
// The pixels h = remainder, remainder + stride, ... were multiplied by the same taps. So their gradient is a
// convolution of dy with those taps in reverse order and stride 1.
struct ReversedTaps {
  ReversedTaps(int64_t remainder, int64_t kernel, int64_t stride, int64_t pad)
      : stride(stride),
        first((remainder + pad) % stride),
        count(first < kernel ? (kernel - 1 - first) / stride + 1 : 0),
        before(count - 1 - (remainder + pad) / stride) {}

  int64_t operator[](int64_t k) const { return first + (count - 1 - k) * stride; }

  int64_t stride, first, count;
  int64_t before;  // output 0 depends on the pixels of dy starting at -before
};

// Forward, and backward data as convolutions by ReversedTaps.
template <class Element>
class Convolution : public ConvPass {
 public:
  Convolution(const ConvShape& shape, PassKind kind) : images_(shape.rows), blocks_(shape.geometry.in_c) {
    const ConvGeometry& g = shape.geometry;
    const ImageSize x{g.in_h, g.in_w, g.in_c}, y{g.out_h, g.out_w, g.out_c};
    if (kind == PassKind::kForward) {
      source_ = x, target_ = y;
      phases_.push_back(forward_phase(g));
      for (int64_t tap = 0; tap < g.kernel_h * g.kernel_w; ++tap) taps_.push_back(tap);
    } else {
      source_ = y, target_ = x;
      for (int64_t h = 0; h < g.stride_h; ++h)
        for (int64_t w = 0; w < g.stride_w; ++w) add_backward_phase(g, h, w);
    }
  }

  size_t packed_bytes() const override { return static_cast<size_t>(blocks_.lanes) * taps_.size() * sizeof(float); }

  // [block][taps][lanes of the block]
  void pack(const float* weights, void* packed) const override {
    auto* to = static_cast<float*>(packed);
    std::fill_n(to, blocks_.lanes * taps(), 0.0f);
    for (const ChannelBlock& block : blocks_.all)
      for (int64_t t = 0; t < taps(); ++t, to += block.vectors * kLanes)
        for_each_lane<Element>(block, [&](int64_t channel, int64_t lane) {
          to[lane] = Element(weights[channel * taps() + taps_[static_cast<size_t>(t)]]);
        });
  }

  void forward(const void* x, const void* packed, const float* bias, void* y) const override {
    convolve(x, packed, bias, y);
  }
  void backward_data(const void* dy, const void* packed, void* dx) const override { convolve(dy, packed, nullptr, dx); }

 private:
  // A row of outputs of a phase.
  struct OutputRow {
    const OutputPhase& phase;
    const float *weights, *bias;
    Element* to;          // output 0
    int64_t column, row;  // elements between neighbouring outputs, and to the output below
  };

  int64_t taps() const { return static_cast<int64_t>(taps_.size()); }

  void add_backward_phase(const ConvGeometry& g, int64_t h, int64_t w) {
    const ReversedTaps down(h, g.kernel_h, g.stride_h, g.top), across(w, g.kernel_w, g.stride_w, g.left);
    phases_.push_back({down.count, across.count, 1, 1, down.before, across.before, quotient_up(g.in_h - h, g.stride_h),
                       quotient_up(g.in_w - w, g.stride_w), h, w, g.stride_h, g.stride_w, taps()});
    for (int64_t u = 0; u < down.count; ++u)
      for (int64_t v = 0; v < across.count; ++v) taps_.push_back(down[u] * g.kernel_w + across[v]);
  }

  void convolve(const void* source, const void* packed, const float* bias, void* target) const {
    const float* const by_lane = bias_by_lane(bias);
    const int64_t rows = phases_.front().rows;  // the most of any phase
    parallel_for(images_ * rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t image = row / rows, i = row % rows;
        const auto* from = static_cast<const Element*>(source) + image * source_.elements();
        auto* to = static_cast<Element*>(target) + image * target_.elements();
        for (const OutputPhase& phase : phases_)
          if (i < phase.rows) compute(row_of(phase, i, static_cast<const float*>(packed), by_lane, to), from, i);
      }
    });
  }

  const float* bias_by_lane(const float* bias) const {
    const auto lanes = static_cast<size_t>(blocks_.lanes);
    auto* const to = static_cast<float*>(conv_workspace(ConvBuffer::kBias, lanes * sizeof(float)));
    std::fill_n(to, lanes, 0.0f);
    if (!bias) return to;
    for (const ChannelBlock& block : blocks_.all)
      for_each_lane<Element>(block, [&](int64_t channel, int64_t lane) { to[block.place + lane] = bias[channel]; });
    return to;
  }

  OutputRow row_of(const OutputPhase& phase, int64_t i, const float* weights, const float* bias, Element* image) const {
    const int64_t first = (phase.to_row + i * phase.step_h) * target_.width + phase.to_column;
    return {phase,
            weights,
            bias,
            image + first * target_.channels,
            phase.step_w * target_.channels,
            phase.step_h * target_.width * target_.channels};
  }

  void compute(const OutputRow& row, const Element* image, int64_t i) const {
    for_each_tile(
        row.phase, source_, image, i, blocks_,
        [&](auto tile, const auto& windows, int64_t first, const ChannelBlock& block)
            __attribute__((always_inline)) { this->compute_tile(tile, row, windows, first, block); },
        [&](auto vectors, auto lanes, const auto& window, int64_t column, const ChannelBlock& block) {
          this->template compute_output<vectors>(row, window, column, block, lanes);
        });
  }

  const float* weights(const OutputRow& row, const ChannelBlock& block) const {
    return row.weights + block.place * taps() + row.phase.tap * block.vectors * kLanes;
  }

  template <class Tile>
  [[gnu::always_inline]] void compute_tile(Tile tile, const OutputRow& row, const Windows<Element>& windows,
                                           int64_t first, const ChannelBlock& block) const {
    constexpr int kVectors = Tile::kVectors, kStep = kVectors * kLanes;
    Vector sum[Tile::kColumns][kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < Tile::kColumns; ++j) load_block(row.bias + block.place, AllLanes{}, sum[j]);
    ask_for_next(tile, row.phase, windows, block);
    const float* taps = weights(row, block) + windows.top * Tile::kWidth * kStep;
    for (int64_t u = windows.top; u < windows.bottom; ++u, taps += Tile::kWidth * kStep) {
      Vector weight[Tile::kWidth][kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < Tile::kWidth; ++v) load_block(taps + v * kStep, AllLanes{}, weight[v]);
      for_each_pixel(
          tile, windows, u, block, [&](const Vector(&pixel)[kVectors], int v, int j) __attribute__((always_inline)) {
            for (int i = 0; i < kVectors; ++i) sum[j][i] += pixel[i] * weight[v][i];
          });
    }
    const int64_t to = first * row.column + block.first;
#pragma GCC unroll 8
    for (int j = 0; j < Tile::kColumns; ++j) store_block(sum[j], AllLanes{}, row.to + (to + j * row.column));
    ask_for<Ask::kWrite, Tile::kColumns, kVectors>(row.to, to + row.row, row.column);
  }

  template <int kVectors, class Lanes>
  void compute_output(const OutputRow& row, const Windows<Element>& window, int64_t column, const ChannelBlock& block,
                      Lanes lanes) const {
    Vector sum[kVectors];
    load_block(row.bias + block.place, AllLanes{}, sum);
    const float* const taps = weights(row, block);
    for_each_tap<kVectors>(row.phase, window, block, lanes, [&](const Vector(&pixel)[kVectors], int64_t tap) {
      Vector weight[kVectors];
      load_block(taps + tap * kVectors * kLanes, AllLanes{}, weight);
      for (int i = 0; i < kVectors; ++i) sum[i] += pixel[i] * weight[i];
    });
    store_block(sum, lanes, row.to + (column * row.column + block.first));
  }

  int64_t images_;
  ImageSize source_{}, target_{};
  Blocks blocks_;
  std::vector<OutputPhase> phases_;
  std::vector<int64_t> taps_;  // for the taps of all phases: their index in the kernel
};

}  // namespace

std::unique_ptr<ConvPass> make_convolution(const ConvShape& shape, PassKind kind) {
  return make_of_element<Convolution>(shape, kind);
}

}  // namespace owt::depthwise

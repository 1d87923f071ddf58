#include "layers/conv_cpu/few_channel_runs.h"

namespace owt::few_channel {
namespace {

// One thread's part of the pass.
template <class Element>
class ForwardPart {
 public:
  ForwardPart(const Runs& runs, const Element* x, const float* packed, const float* bias, Element* y, Element* memory)
      : runs_(runs), g_(runs.g), x_(x), packed_(packed), bias_(bias), y_(y), window_(runs, g_.kernel_h, memory) {}

  void compute(Slice rows) {
    window_.begin_image();
    by_image(runs_, rows, 1, [&](int64_t image, int64_t row, int64_t) {
      if (row == 0) window_.begin_image();
      const Element* pixels = x_ + image * g_.in_h * g_.in_w * g_.in_c;
      window_.move(row * g_.stride_h - g_.top, g_.kernel_h,
                   [&](int64_t i, Element* to) { copy_row(runs_, pixels, i, to); });
      for (const OutputBlock& block : runs_.blocks)
        with_constant<kMostVectors>(block.vectors, [&](auto vectors) {
          this->compute_block<vectors>(block, y_ + (image * g_.out_h + row) * g_.out_w * g_.out_c + block.first);
        });
    });
  }

 private:
  template <int kVectors>
  void compute_block(const OutputBlock& block, Element* to) {
    Vector bias[kVectors] = {};
    if (bias_) std::memcpy(bias, bias_ + block.first, static_cast<size_t>(block.count) * sizeof(float));
    const float* weights = packed_ + block.first * g_.kernel_h * quotient_up(runs_.length, kPerUnit<Element>);
    in_parts(g_.out_w, block_rows(kVectors), [&](int64_t first, int columns) {
      with_constant<block_rows(kVectors)>(columns, [&](auto width) {
        if (block.count == kVectors * kLanes)
          return this->tile<width, kVectors>(first, weights, bias, to + first * g_.out_c, g_.out_c);
        Element lanes[width][kVectors * kLanes];
        this->tile<width, kVectors>(first, weights, bias, lanes[0], kVectors * kLanes);
        for (int r = 0; r < width; ++r) std::copy_n(lanes[r], block.count, to + (first + r) * g_.out_c);
      });
    });
  }

  // Computes kColumns columns of a row of y, starting at `first`.
  template <int kColumns, int kVectors>
  [[gnu::noinline]] void tile(int64_t first, const float* weights, const Vector* bias, Element* to, int64_t to_column) {
    Vector sum[kColumns][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kColumns; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = bias[v];
    constexpr int64_t kElement = sizeof(Element), kUnit = sizeof(float), kStep = kVectors * kLanes;
    const int64_t steps = runs_.length / kPerUnit<Element>;
    for (int64_t u = 0; u < g_.kernel_h; ++u, weights += steps * kStep) {
      const Element* run = window_[u] + first * runs_.stride;
      multiply_add<Element>(sum, run, runs_.stride * kElement, kUnit, weights, kStep * kUnit, steps);
      if constexpr (kPerUnit<Element> == 2)
        if (runs_.length % 2) {
          multiply_add_halves(sum, run + runs_.length - 1, runs_.stride, weights + steps * kStep);
          weights += kStep;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kColumns; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) store(sum[r][v], to + r * to_column + v * kLanes);
  }

  const Runs& runs_;
  const ConvGeometry& g_;
  const Element* x_;
  const float *packed_, *bias_;
  Element* y_;
  RowWindow<Element> window_;
};

void write_unit(float weight, float, float* to) { *to = weight; }
void write_unit(Bf16 weight, Bf16 next, float* to) {
  const Bf16 pair[] = {weight, next};
  std::memcpy(to, pair, sizeof pair);
}

template <class Element>
class FewChannelForward : public ConvPass {
 public:
  explicit FewChannelForward(const ConvShape& shape)
      : runs_(shape.geometry), images_(shape.rows), threads_(team_size()) {}

  size_t packed_bytes() const override {
    const int64_t units = runs_.g.kernel_h * quotient_up(runs_.length, kPerUnit<Element>) * runs_.lanes;
    return static_cast<size_t>(units) * sizeof(float);
  }

  // [block][kernel_h][units of the run][outputs of the block]
  void pack(const float* weights, void* packed) const override {
    auto* to = static_cast<float*>(packed);
    const auto weight = [&](int64_t o, int64_t u, int64_t k) {
      return o < runs_.g.out_c && k < runs_.length ? weights[(o * runs_.g.kernel_h + u) * runs_.length + k] : 0.0f;
    };
    for (const OutputBlock& block : runs_.blocks)
      for (int64_t u = 0; u < runs_.g.kernel_h; ++u)
        for (int64_t k = 0; k < runs_.length; k += kPerUnit<Element>)
          for (int64_t o = block.first; o < block.first + block.vectors * kLanes; ++o)
            write_unit(Element(weight(o, u, k)), Element(weight(o, u, k + 1)), to++);
  }

  void forward(const void* x, const void* packed, const float* bias, void* y) const override {
    const int64_t each = runs_.g.kernel_h * RowWindow<Element>::elements_of_row(runs_);
    auto* memory = workspace<Element>(threads_ * each);
    split_rows(runs_, images_, threads_, [&](int64_t thread, Slice rows) {
      ForwardPart<Element>(runs_, static_cast<const Element*>(x), static_cast<const float*>(packed), bias,
                           static_cast<Element*>(y), memory + thread * each)
          .compute(rows);
    });
  }

 private:
  Runs runs_;
  int64_t images_, threads_;
};

}  // namespace

std::unique_ptr<ConvPass> make_forward(const ConvShape& shape) { return make_of_element<FewChannelForward>(shape); }

}  // namespace owt::few_channel

#include "layers/conv_cpu/few_channel_runs.h"

namespace owt::few_channel {
namespace {

// The part of dy that is read repeatedly at a time: half of a typical L1 cache.
constexpr int64_t kPanelBytes = 24 << 10;

// bf16 products use pairs of columns.
template <class Element>
using Unit = std::conditional_t<kPerUnit<Element> == 1, float, uint32_t>;

// Pairs each element with the element at the same place in the next run.
void pair_columns(const Runs& runs, const Bf16* row, uint32_t* pairs) {
  const int64_t both = std::max<int64_t>(0, runs.row - runs.stride);
  for (int64_t e = 0; e < both; ++e) pairs[e] = row[e].bits | static_cast<uint32_t>(row[e + runs.stride].bits) << 16;
  for (int64_t e = both; e < runs.row; ++e) pairs[e] = row[e].bits;
}

// Some rows of dy, or columns of one row, ordered by block as they are read.
template <class Element>
class Panel {
 public:
  explicit Panel(const Runs& runs, float* memory = nullptr) : runs_(&runs), memory_(memory) {
    const int64_t steps = quotient_up(runs.g.out_w, kPerUnit<Element>);
    const int64_t bytes = steps * runs.blocks[0].vectors * static_cast<int64_t>(sizeof(Vector));
    steps_ = quotient_up(steps, quotient_up(bytes, kPanelBytes));
    rows_ = std::clamp<int64_t>(kPanelBytes / bytes, 1, runs.g.out_h);
  }

  int64_t rows() const { return rows_; }
  int64_t columns() const { return steps_ * kPerUnit<Element>; }
  int64_t floats() const { return rows_ * steps_ * runs_->lanes; }

  // The vectors of a block, as many for each step (a unit of columns) as the block has, row after row.
  float* at(const OutputBlock& block, int64_t row) const {
    return memory_ + (block.first * rows_ + row * block.vectors * kLanes) * steps_;
  }

  // Copies these columns of dy into the row and adds their sums to `sums`. It prefetches the data that follows after
  // one panel size, which is needed when this panel has been used.
  void enter(int64_t row, const Element* dy, int64_t columns, float* sums) const {
    for (const OutputBlock& block : runs_->blocks)
      with_constant<kMostVectors>(block.vectors, [&](auto vectors) {
        this->enter_block<vectors>(dy + block.first, dy + columns * runs_->g.out_c, at(block, row), sums + block.first);
      });
  }

 private:
  // Copies vectors of outputs up to the end of `dy`. Whole vectors may include outputs of the next column after their
  // own; these do not affect the result. At the end, where reading beyond dy is not allowed, it reads from a padded
  // copy.
  template <int kVectors>
  void enter_block(const Element* dy, const Element* end, float* to, float* sums) const {
    constexpr int64_t kColumns = kPerUnit<Element>, kOutputs = kVectors * kLanes;
    const int64_t step = kColumns * runs_->g.out_c, whole = end - dy - kOutputs - step + runs_->g.out_c;
    const int64_t steps = whole < 0 ? 0 : whole / step + 1;
    enter_steps<kVectors>(dy, runs_->g.out_c, steps, to, sums);
    for (dy += steps * step, to += steps * kOutputs; dy < end; dy += step, to += kOutputs) {
      Element last[kColumns][kOutputs] = {};
      const Element* from = dy;
      for (int64_t c = 0; c < kColumns && from < end; ++c, from += runs_->g.out_c)
        std::copy(from, std::min(from + kOutputs, end), last[c]);
      enter_steps<kVectors>(last[0], kOutputs, 1, to, sums);
    }
  }

  template <int kVectors>
  [[gnu::noinline]] static void enter_steps(const Element* dy, int64_t column, int64_t steps, float* to, float* sums) {
    static const Element ones[] = {1.0f, 1.0f};
    Vector sum[kVectors] = {};
    for (int64_t s = 0; s < steps; ++s, dy += kPerUnit<Element> * column)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v, to += kLanes) {
        const Vector unit = unit_at(dy + v * kLanes, column);
        __builtin_prefetch(reinterpret_cast<const char*>(dy) + kPanelBytes + v * 64, 0, 2);
        add_product<Element>(reinterpret_cast<const char*>(ones), unit, sum[v]);
        store(unit, to);
      }
    for (int v = 0; v < kVectors; ++v) store(load(sums + v * kLanes) + sum[v], sums + v * kLanes);
  }

  static Vector unit_at(const float* from, int64_t) { return load(from); }
  static Vector unit_at(const Bf16* from, int64_t column) {
    VectorU16 halves[2];
    std::memcpy(&halves[0], from, sizeof halves[0]);
    std::memcpy(&halves[1], from + column, sizeof halves[1]);
    const VectorU32 low = __builtin_convertvector(halves[0], VectorU32),
                    high = __builtin_convertvector(halves[1], VectorU32);
    return reinterpret_cast<Vector>(low | high << 16);
  }

  const Runs* runs_;
  int64_t rows_, steps_;
  float* memory_;
};

// One thread's part of the pass: sums over its rows of y.
template <class Element>
class BackwardPart {
 public:
  static int64_t floats(const Runs& runs) {
    const Panel<Element> panel(runs);
    return sums(runs) + runs.lanes + panel.floats() +
           (slots(panel, runs) + 1) * RowWindow<float>::elements_of_row(runs);
  }

  BackwardPart(const Runs& runs, float* memory)
      : runs_(runs),
        g_(runs.g),
        panel_(runs, memory + sums(runs) + runs.lanes),
        weights_(memory),
        bias_(memory + sums(runs)),
        row_(bias_ + runs.lanes + panel_.floats()),
        window_(runs, slots(panel_, runs),
                reinterpret_cast<Unit<Element>*>(row_ + RowWindow<float>::elements_of_row(runs))) {}

  void compute(Slice rows, const Element* x, const Element* dy) {
    std::fill_n(weights_, sums(runs_) + runs_.lanes, 0.0f);
    window_.begin_image();
    by_image(runs_, rows, panel_.rows(), [&](int64_t image, int64_t row, int64_t count) {
      if (row == 0) window_.begin_image();
      const Element* pixels = x + image * g_.in_h * g_.in_w * g_.in_c;
      window_.move(row * g_.stride_h - g_.top, (count - 1) * g_.stride_h + g_.kernel_h,
                   [&](int64_t i, Unit<Element>* to) { enter_row(pixels, i, to); });
      for (int64_t first = 0; first < g_.out_w; first += panel_.columns())
        add(dy + ((image * g_.out_h + row) * g_.out_w + first) * g_.out_c,
            {count, first, std::min(panel_.columns(), g_.out_w - first)});
    });
  }

  // The sum for element k of the kernel of output o of a block; valid after compute().
  float weight(const OutputBlock& block, int64_t o, int64_t k) const {
    return weights_[block.first * g_.kernel_h * runs_.length + k * block.vectors * kLanes + o];
  }
  float bias(int64_t o) const { return bias_[o]; }

 private:
  // The rows and columns of y in the panel.
  struct OutputRange {
    int64_t rows, first_column, columns;
  };

  static int64_t sums(const Runs& runs) { return runs.g.kernel_h * runs.length * runs.lanes; }
  static int64_t slots(const Panel<Element>& panel, const Runs& runs) {
    return runs.g.kernel_h + (panel.rows() - 1) * runs.g.stride_h;
  }

  void enter_row(const Element* image, int64_t i, Unit<Element>* to) {
    if constexpr (kPerUnit<Element> == 1) {
      copy_row(runs_, image, i, to);
    } else {
      auto* row = reinterpret_cast<Element*>(row_);
      copy_row(runs_, image, i, row);
      pair_columns(runs_, row, to);
    }
  }

  void add(const Element* dy, const OutputRange& range) {
    for (int64_t row = 0; row < range.rows; ++row)
      panel_.enter(row, dy + row * g_.out_w * g_.out_c, range.columns, bias_);
    for (const OutputBlock& block : runs_.blocks)
      with_constant<kMostVectors>(block.vectors, [&](auto vectors) {
        for (int64_t u = 0; u < g_.kernel_h; ++u) this->add_run<vectors>(block, u, range);
      });
  }

  template <int kVectors>
  void add_run(const OutputBlock& block, int64_t u, const OutputRange& range) {
    float* const to = weights_ + (block.first * g_.kernel_h + u * kVectors * kLanes) * runs_.length;
    in_parts(runs_.length, block_rows(kVectors), [&](int64_t k, int elements) {
      with_constant<block_rows(kVectors)>(
          elements, [&](auto height) { this->tile<height, kVectors>(block, u, k, range, to + k * kVectors * kLanes); });
    });
  }

  // Elements [k, k + kElements) of row u of the kernel.
  template <int kElements, int kVectors>
  [[gnu::noinline]] void tile(const OutputBlock& block, int64_t u, int64_t k, const OutputRange& range, float* to) {
    Vector sum[kElements][kVectors] = {};
    constexpr int64_t kUnit = sizeof(float), kStep = kVectors * kLanes;
    const int64_t steps = range.columns / kPerUnit<Element>;
    for (int64_t row = 0; row < range.rows; ++row) {
      const Unit<Element>* run = window_[u + row * g_.stride_h] + range.first_column * runs_.stride + k;
      const float* dy = panel_.at(block, row);
      multiply_add<Element>(sum, run, kUnit, kPerUnit<Element> * runs_.stride * kUnit, dy, kStep * kUnit, steps);
      if constexpr (kPerUnit<Element> == 2)
        if (range.columns % 2)
          multiply_add_halves(sum, reinterpret_cast<const Bf16*>(run + steps * 2 * runs_.stride), 2,
                              dy + steps * kStep);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kElements; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* const sums = to + r * kStep + v * kLanes;
        store(load(sums) + sum[r][v], sums);
      }
  }

  const Runs& runs_;
  const ConvGeometry& g_;
  Panel<Element> panel_;
  float *weights_, *bias_, *row_;
  RowWindow<Unit<Element>> window_;
};

template <class Element>
class FewChannelBackwardWeights : public ConvPass {
 public:
  explicit FewChannelBackwardWeights(const ConvShape& shape)
      : runs_(shape.geometry), images_(shape.rows), threads_(team_size()) {}

  void backward_weights(const void* x, const void* dy, float beta, float* weights, float bias_beta,
                        float* bias) const override {
    const int64_t each = BackwardPart<Element>::floats(runs_);
    auto* memory = workspace<float>(threads_ * each);
    Parts parts;
    for (int64_t thread = 0; thread < threads_; ++thread) parts.emplace_back(runs_, memory + thread * each);
    split_rows(runs_, images_, threads_, [&](int64_t thread, Slice rows) {
      parts[static_cast<size_t>(thread)].compute(rows, static_cast<const Element*>(x), static_cast<const Element*>(dy));
    });
    for (const OutputBlock& block : runs_.blocks)
      parallel_for(block.count, kLanes, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) {
          add_weights(parts, block, o, beta, weights);
          if (bias)
            finish(sum(parts, [&](const auto& part) { return part.bias(block.first + o); }), bias_beta,
                   bias[block.first + o]);
        }
      });
  }

 private:
  using Parts = std::vector<BackwardPart<Element>>;

  void add_weights(const Parts& parts, const OutputBlock& block, int64_t o, float beta, float* weights) const {
    const int64_t elements = runs_.g.kernel_h * runs_.length;
    float* const to = weights + (block.first + o) * elements;
    for (int64_t k = 0; k < elements; ++k)
      finish(sum(parts, [&](const auto& part) { return part.weight(block, o, k); }), beta, to[k]);
  }

  template <class OfPart>
  static float sum(const Parts& parts, const OfPart& of_part) {
    float total = 0;
    for (const auto& part : parts) total += of_part(part);
    return total;
  }
  static void finish(float sum, float beta, float& total) { total = beta == 0 ? sum : total + sum; }

  Runs runs_;
  int64_t images_, threads_;
};

}  // namespace

std::unique_ptr<ConvPass> make_backward_weights(const ConvShape& shape) {
  return make_of_element<FewChannelBackwardWeights>(shape);
}

}  // namespace owt::few_channel

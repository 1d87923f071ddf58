#include "layers/dropout.h"

#include <algorithm>
#include <cmath>

#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/philox.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kDropoutGrain = 1 << 12;  // fewest elements per thread for which a thread is worth waking

class DropoutOp : public Op {
 public:
  DropoutOp(const DropoutSettings& settings, const Shape& in)
      : settings_(settings),
        scale_(settings.scale()),
        // Equivalent to uniform < rate, on the 24 bits that make the uniform number.
        threshold_(static_cast<uint32_t>(std::ceil(settings.rate * 0x1p24))),
        kept_(settings.whole_rows ? Shape{in.rows(), 1} : in, DType::kU8) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    if (pass.mode == Mode::kEval) {
      if (y.raw() != x.raw()) y.copy_from(x);
      return;
    }
    OWT_CHECK_EQ(static_cast<int64_t>(pass.rows.size()), x.shape().rows(), "dropout needs every row's index");
    draw(pass);
    run(x, y);
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (dx) run(dy, *dx);
  }

 private:
  void draw(const Pass& pass) {
    const Philox random(pass.seed, RandomStream::kDropout, static_cast<uint64_t>(pass.step), settings_.name);
    const int64_t columns = kept_.shape().row_elements();
    uint8_t* kept = kept_.data<uint8_t>();
    parallel_for(kept_.shape().rows(), kDropoutGrain / std::max<int64_t>(1, columns), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = pass.rows[static_cast<size_t>(row)] * settings_.row_elements + settings_.first_column;
        draw_row(random, static_cast<uint64_t>(first), static_cast<uint64_t>(columns), kept + row * columns);
      }
    });
  }

  // Sets kept[j] for elements first + j. A Philox block holds the numbers of four elements; the middle uses whole
  // blocks.
  void draw_row(const Philox& random, uint64_t first, uint64_t count, uint8_t* kept) const {
    uint64_t j = 0;
    for (; j < count && (first + j) % 4 != 0; ++j) kept[j] = keeps(random.bits(first + j), threshold_);
    const uint64_t blocks = (count - j) / 4;
    draw_blocks(random, (first + j) / 4, blocks, threshold_, kept + j);
    for (j += 4 * blocks; j < count; ++j) kept[j] = keeps(random.bits(first + j), threshold_);
  }

  // flatten: the compiler vectorises over blocks only if the generator is inlined into the loop.
  [[gnu::flatten]] static void draw_blocks(const Philox& random, uint64_t first, uint64_t blocks, uint32_t threshold,
                                           uint8_t* kept) {
    for (uint64_t block = 0; block < blocks; ++block) {
      const auto bits = random.block(first + block);
      for (uint64_t lane = 0; lane < 4; ++lane) kept[4 * block + lane] = keeps(bits[lane], threshold);
    }
  }

  static uint8_t keeps(uint32_t bits, uint32_t threshold) { return bits >> 8 >= threshold; }

  // y = scale * x where kept, else 0
  void run(const Tensor& x, Tensor& y) const {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      if (settings_.whole_rows)
        scale_rows(x.shape(), x.data<T>(), y.data<T>());
      else
        scale_kept(x.elements(), x.data<T>(), y.data<T>());
    });
  }

  template <class T>
  void scale_kept(int64_t elements, const T* from, T* to) const {
    const uint8_t* kept = kept_.data<uint8_t>();
    parallel_for(elements, kDropoutGrain, [=, scale = scale_](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float scaled = scale * from[i];
        to[i] = kept[i] ? scaled : 0.0f;
      }
    });
  }

  template <class T>
  void scale_rows(const Shape& shape, const T* from, T* to) const {
    const uint8_t* kept = kept_.data<uint8_t>();
    const int64_t columns = shape.row_elements();
    parallel_for(shape.rows(), kDropoutGrain / std::max<int64_t>(1, columns),
                 [=, scale = scale_](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row)
                     if (!kept[row])
                       std::fill_n(to + row * columns, columns, T{});
                     else
                       for (int64_t i = row * columns; i < (row + 1) * columns; ++i) keep(scale * from[i], to[i]);
                 });
  }

  DropoutSettings settings_;
  float scale_;
  uint32_t threshold_;
  Tensor kept_;  // 1 for kept elements, or rows
};

class Dropout : public Layer {
 public:
  Dropout(const LayerSpec& spec, bool whole_rows)
      : Layer(spec.name, whole_rows ? "drop_path" : "dropout"), images_(spec.in.rank() == 3) {
    settings_.name = spec.name;
    settings_.whole_rows = whole_rows;
    settings_.rate = spec.config.number("rate", {.low = 0, .high = 1});
    if (settings_.rate == 1) spec.config.error("rate", "'rate' is 1, wanted less: everything would be dropped");
    if (whole_rows) return;
    settings_.row_elements = spec.in.elements();
    settings_.first_column = spec.part ? spec.part->begin : 0;
  }

  Shape out_shape(const Shape& in) const override { return in; }
  // A part of an image's channels is not contiguous in the row; the op does not support that for a dropout.
  Columns columns() const override { return images_ && !settings_.whole_rows ? Columns::kMixes : Columns::kKeeps; }
  std::optional<Content> in_place() const override { return Content::kSigns; }
  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    return dispatch(on, [&](auto tag) { return bind_dropout(tag, settings_, in); });
  }
  Described describe(const Shape&) override { return {type(), {{"rate", settings_.rate}}, {}}; }
  const DropoutSettings& settings() const { return settings_; }

 private:
  bool images_;
  DropoutSettings settings_;
};

}  // namespace

std::unique_ptr<Layer> make_dropout(const LayerSpec& spec) { return std::make_unique<Dropout>(spec, false); }

std::unique_ptr<Layer> make_drop_path(const LayerSpec& spec) { return std::make_unique<Dropout>(spec, true); }

const DropoutSettings* dropout_settings(const Layer& layer) {
  const auto* dropout = dynamic_cast<const Dropout*>(&layer);
  return dropout && !dropout->settings().whole_rows ? &dropout->settings() : nullptr;
}

std::unique_ptr<Op> bind_dropout(Cpu, const DropoutSettings& settings, const Shape& in) {
  return std::make_unique<DropoutOp>(settings, in);
}

}  // namespace owt

#include "layers/dropout.h"

#include <cmath>

#include "layers/relu.h"
#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/core/philox.cuh"
#include "src/core/row_grid.cuh"

namespace owt {
namespace {

constexpr int kGroup = 8;  // columns of one thread; their mask is one byte

// The random numbers of a batch's elements: the position of its first column in the whole rows of the step, or one
// number for each row.
struct BatchColumns {
  int64_t row_elements, first_column;
  bool whole_rows;
};

// One bit for each of the 8 elements from `first` on: whether it is kept. A Philox block holds the numbers of four
// elements, and the first element may be anywhere in its block.
__device__ unsigned draw_kept(const DevicePhilox& random, uint64_t first, uint32_t threshold) {
  const auto skipped = static_cast<unsigned>(first % 4);
  const int blocks = skipped == 0 ? 2 : 3;
  unsigned kept = 0;
  for (int b = 0; b < blocks; ++b) {
    const DevicePhilox::PhiloxBlock four = random.block(first / 4 + static_cast<uint64_t>(b));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane)
      kept |= static_cast<unsigned>(four.at[lane] >> 8 >= threshold) << (4 * b + lane);
  }
  return kept >> skipped & 0xff;
}

template <bool kRelu, class T>
__device__ T scale_kept(T x, unsigned kept, int bit, float scale) {
  const float value = to_float(x), scaled = scale * (kRelu && value < 0 ? 0.0f : value);  // NaN stays NaN
  return from_float<T>(kept >> bit & 1 ? scaled : 0.0f);
}

// y = scale * x where kept, else 0, for the group at column `first` of a row; with kRelu: scale * max(x, 0). kWhole:
// all groups have 8 columns, and their addresses allow loading packs.
template <class T, bool kWhole, bool kRelu>
__device__ void scale_group(const T* x, T* y, int first, int columns, unsigned kept, float scale) {
  if constexpr (kWhole) {
    Pack<T, kGroup> pack = load_pack<T, kGroup>(x + first);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) pack.at[j] = scale_kept<kRelu>(pack.at[j], kept, j, scale);
    store_pack(y + first, pack);
  } else {
    for (int j = 0; j < kGroup && first + j < columns; ++j)
      y[first + j] = scale_kept<kRelu>(x[first + j], kept, j, scale);
  }
}

// With kRelu no mask is stored.
template <class T, bool kWhole, bool kRelu>
__global__ void dropout_forward(int rows, int columns, BatchColumns part, DevicePhilox random, const int64_t* step,
                                const int64_t* row_of_step, uint32_t threshold, float scale, const T* x, T* y,
                                uint8_t* mask) {
  wait_for_previous_kernel();
  const int groups = (columns + kGroup - 1) / kGroup;
  const RowItem at = row_item(rows, groups);
  if (!at.inside) return;
  const int column = at.item * kGroup;
  const int64_t first = row_of_step[at.row] * part.row_elements + part.first_column + (part.whole_rows ? 0 : column);
  unsigned kept = draw_kept(random.at_step(static_cast<uint64_t>(*step)), static_cast<uint64_t>(first), threshold);
  if (part.whole_rows) kept = kept & 1 ? 0xff : 0;
  if constexpr (!kRelu) mask[static_cast<int64_t>(at.row) * groups + at.item] = static_cast<uint8_t>(kept);
  const int64_t row = static_cast<int64_t>(at.row) * columns;
  scale_group<T, kWhole, kRelu>(x + row, y + row, column, columns, kept, scale);
}

template <class T, bool kWhole>
__global__ void dropout_backward(int rows, int columns, const uint8_t* mask, float scale, const T* dy, T* dx) {
  wait_for_previous_kernel();
  const int groups = (columns + kGroup - 1) / kGroup;
  const RowItem at = row_item(rows, groups);
  if (!at.inside) return;
  const unsigned kept = mask[static_cast<int64_t>(at.row) * groups + at.item];
  const int64_t row = static_cast<int64_t>(at.row) * columns;
  scale_group<T, kWhole, false>(dy + row, dx + row, at.item * kGroup, columns, kept, scale);
}

// Draws the kept elements and applies the dropout.
class Draw {
 public:
  Draw(const DropoutSettings& settings, const Shape& in)
      : settings_(settings),
        // Equivalent to uniform < rate, on the 24 bits that make the uniform number.
        threshold_(static_cast<uint32_t>(std::ceil(settings.rate * 0x1p24))),
        columns_(in.row_elements()) {}

  int64_t columns() const { return columns_; }
  int64_t groups() const { return (columns_ + kGroup - 1) / kGroup; }
  float scale() const { return settings_.scale(); }

  template <class T>
  bool whole_groups(const T* from, const T* to) const {
    return columns_ % kGroup == 0 && hold_packs<kGroup>(from, to);
  }

  template <bool kRelu, class T>
  void run(const Pass& pass, int64_t rows, const T* x, T* y, uint8_t* mask) const {
    OWT_CHECK(pass.device_rows && pass.device_step, "dropout needs the step and every row's index on the GPU");
    if (whole_groups(x, y))
      start<true, kRelu>(pass, rows, x, y, mask);
    else
      start<false, kRelu>(pass, rows, x, y, mask);
  }

 private:
  template <bool kWhole, bool kRelu, class T>
  void start(const Pass& pass, int64_t rows, const T* x, T* y, uint8_t* mask) const {
    const RowGrid threads = row_grid(rows, groups());
    const DevicePhilox random(Philox(pass.seed, RandomStream::kDropout, 0, settings_.name));
    launch(dropout_forward<T, kWhole, kRelu>, threads.grid, threads.block, *pass.stream, rows, columns_,
           BatchColumns{settings_.row_elements, settings_.first_column, settings_.whole_rows}, random, pass.device_step,
           pass.device_rows, threshold_, scale(), x, y, mask);
  }

  DropoutSettings settings_;
  uint32_t threshold_;
  int64_t columns_;
};

template <class T>
class CudaDropout : public Op {
 public:
  CudaDropout(const DropoutSettings& settings, const Shape& in)
      : draw_(settings, in), mask_({in.rows(), draw_.groups()}, DType::kU8, Device::kCuda) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    if (pass.mode == Mode::kEval) {
      if (y.raw() != x.raw()) y.copy_from(x, *pass.stream);
      return;
    }
    draw_.run<false>(pass, x.shape().rows(), x.data<T>(), y.data<T>(), mask_.data<uint8_t>());
  }

  void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    const T* from = dy.data<T>();
    T* to = dx->data<T>();
    if (draw_.whole_groups(from, to))
      apply<true>(pass, dy.shape().rows(), from, to);
    else
      apply<false>(pass, dy.shape().rows(), from, to);
  }

 private:
  template <bool kWhole>
  void apply(const Pass& pass, int64_t rows, const T* dy, T* dx) {
    const RowGrid threads = row_grid(rows, draw_.groups());
    launch(dropout_backward<T, kWhole>, threads.grid, threads.block, *pass.stream, rows, draw_.columns(),
           mask_.data<uint8_t>(), draw_.scale(), dy, dx);
  }

  Draw draw_;
  Tensor mask_;  // one bit for each element, set if kept; each row starts at a byte
};

}  // namespace

std::unique_ptr<Op> bind_dropout(Cuda cuda, const DropoutSettings& settings, const Shape& in) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = std::make_unique<CudaDropout<decltype(element)>>(settings, in); });
  return op;
}

ReluDropout bind_relu_dropout(Cuda cuda, const DropoutSettings& settings, const Shape& in) {
  const std::shared_ptr<Op> relu = bind_relu(cuda);
  return [draw = Draw(settings, in), relu](const Pass& pass, Tensor& y) {
    if (pass.mode == Mode::kEval) return relu->forward(pass, y, y);
    with_element(y.dtype(), [&](auto element) {
      using T = decltype(element);
      draw.run<true>(pass, y.shape().rows(), y.data<T>(), y.data<T>(), nullptr);
    });
  };
}

}  // namespace owt

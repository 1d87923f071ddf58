#include "layers/conv_cpu/dense_products.h"

#include <algorithm>

#include "layers/conv_cpu/conv_workspace.h"
#include "layers/conv_cpu/micro_gemm.h"
#include "src/core/threads.h"

namespace owt {
namespace dense_products {

// The size of a block of sums, in vectors of features and in outputs.
constexpr int kVectors = 3, kOutputs = kLanes == 16 ? 8 : 4;
constexpr int64_t kPanel = kVectors * kLanes;
constexpr int64_t kWorthAThread = 1 << 19;  // multiplications

// The type of the factors: bf16 if the processor multiplies bf16, else float.
template <class T>
using Factor = std::conditional_t<kHasProducts<T>, T, float>;
template <class T>
constexpr int64_t kRowsOfAStep = kPerUnit<Factor<T>>;

// Memory in units of 32 bits: a part shared by the team, and a part for each thread.
struct Workspace {
  Workspace(int64_t shared_units, int64_t of_a_thread) : each(round_up(of_a_thread, kLine)) {
    const int64_t first = round_up(shared_units, kLine), bytes = 4 * (first + team_size() * each);
    shared = static_cast<uint32_t*>(conv_workspace(ConvBuffer::kTiles, static_cast<size_t>(bytes)));
    threads = reinterpret_cast<float*>(shared + first);
  }
  float* of_this_thread() const { return threads + omp_get_thread_num() * each; }

  static constexpr int64_t kLine = 16;
  int64_t each;
  uint32_t* shared;
  float* threads;
};

inline uint32_t unit(float value) { return std::bit_cast<uint32_t>(value); }
inline uint32_t unit(Bf16 low, Bf16 high) { return low.bits | static_cast<uint32_t>(high.bits) << 16; }

// Packs the units of one step of a sum over rows, and zeros after its columns. next: the second row of a pair, or null.
template <class T>
void pack_step(const T* row, const T* next, int64_t columns, uint32_t* to) {
  for (int64_t c = 0; c < columns; ++c)
    if constexpr (kRowsOfAStep<T> == 1)
      to[c] = unit(row[c]);
    else
      to[c] = unit(row[c], next ? next[c] : Bf16{0.0f});
  std::fill(to + columns, to + kPanel, 0);
}

// Packs rows as the steps of a sum: in panels of kPanel columns, each with its units of step 0, step 1, ...
template <class T>
void pack(const T* from, int64_t rows, int64_t columns, uint32_t* to) {
  const int64_t steps = quotient_up(rows, kRowsOfAStep<T>);
  parallel_for(quotient_up(columns, kPanel), quotient_up(1 << 15, steps * kPanel), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin * kPanel; c < std::min(end * kPanel, columns); c += kPanel)
      for (int64_t s = 0; s < steps; ++s) {
        const T* const row = from + s * kRowsOfAStep<T> * columns + c;
        pack_step(row, (s + 1) * kRowsOfAStep<T> <= rows ? row + columns : nullptr, std::min(kPanel, columns - c),
                  to + c * steps + s * kPanel);
      }
  });
}

// to = a * b. b is a panel and a is part of a panel; both have `steps` steps.
template <class T>
void multiply(const uint32_t* a, const uint32_t* b, int64_t steps, float* to, int64_t pitch) {
  Vector sum[kOutputs][kVectors] = {};
  multiply_add<Factor<T>>(sum, a, 4, 4 * kPanel, b, 4 * kPanel, steps);
  for (int r = 0; r < kOutputs; ++r)
    for (int v = 0; v < kVectors; ++v) store(sum[r][v], to + r * pitch + v * kLanes);
}

// A block of the gradient. It is computed in the second-level cache and read from there row by row. Rows are cut only
// if they are very long, or if the columns of all images do not fit into the last-level cache: accessing the weight out
// of memory order halves the memory speed.
struct GradientBlock {
  GradientBlock(int64_t features, int64_t steps) {
    constexpr int64_t kMostElements = 150000, kMostUnits = 3 << 20;
    const int64_t most_columns = std::clamp<int64_t>(kMostUnits / steps, 1024, 16384);
    columns = round_up(quotient_up(features, quotient_up(features, most_columns)), kPanel);
    rows = std::clamp<int64_t>(kMostElements / columns / kOutputs, 1, 16) * kOutputs;
  }
  int64_t rows, columns;
};

}  // namespace dense_products

template <class T>
void dense_weight_gradient(const DenseExtents& extents, const T* x, const T* dy, const TakeGradient& take) {
  using namespace dense_products;
  const int64_t rows = extents.rows, features = extents.features, out = extents.out;
  const int64_t steps = quotient_up(rows, kRowsOfAStep<T>);
  const GradientBlock block(features, steps);
  const Workspace space((round_up(features, kPanel) + round_up(out, kPanel)) * steps, block.rows * block.columns);
  uint32_t *const packed_x = space.shared, *const packed_dy = packed_x + round_up(features, kPanel) * steps;
  pack(x, rows, features, packed_x);
  pack(dy, rows, out, packed_dy);
  const auto fill = [&](const Slice& outputs, const Slice& inputs, float* to) {
    for (int64_t f = inputs.begin; f < inputs.end; f += kPanel)
      for (int64_t o = outputs.begin; o < outputs.end; o += kOutputs)
        multiply<T>(packed_dy + o / kPanel * kPanel * steps + o % kPanel, packed_x + f * steps, steps,
                    to + (o - outputs.begin) * block.columns + f - inputs.begin, block.columns);
  };
  const int64_t grain = quotient_up(kWorthAThread, kOutputs * rows * features);
  parallel_for(quotient_up(out, kOutputs), grain, [&](int64_t begin, int64_t end) {
    float* const gradient = space.of_this_thread();
    const int64_t last = std::min(end * kOutputs, out);
    for (int64_t f = 0; f < features; f += block.columns)
      for (int64_t o = begin * kOutputs; o < last; o += block.rows) {
        const Slice outputs{o, std::min(o + block.rows, last)}, inputs{f, std::min(f + block.columns, features)};
        fill(outputs, inputs, gradient);
        for (int64_t r = o; r < outputs.end; ++r)
          take(r * features + f, inputs.size(), gradient + (r - o) * block.columns);
      }
  });
}

template void dense_weight_gradient(const DenseExtents&, const float*, const float*, const TakeGradient&);
template void dense_weight_gradient(const DenseExtents&, const Bf16*, const Bf16*, const TakeGradient&);

}  // namespace owt

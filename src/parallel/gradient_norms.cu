#include <algorithm>

#include "layers/loss/softmax_rows.cuh"
#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/parallel/gradient_norms.h"
#include "src/plan/plan_bytes.h"

namespace owt {
namespace {

constexpr unsigned kSumThreads = 256;

struct SquareItems {
  SquareItem item[kParamsPerUpdate];
};

template <class T>
__device__ double squares(const SquareItem& item, int64_t begin, int64_t end) {
  const auto* values = static_cast<const T*>(item.values);
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const double value = to_float(values[i]);
    sum += value * value;
  }
  return reduce_block(sum, Sum{});
}

// Grid: a row of blocks per item; the blocks of a row stride over its chunks.
__global__ void square_items(SquareItems items, double* partials) {
  wait_for_previous_kernel();
  const SquareItem& item = items.item[blockIdx.y];
  const int64_t chunks = (item.count + kSquareChunk - 1) / kSquareChunk;
  for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
    const int64_t begin = c * kSquareChunk, end = begin + kSquareChunk < item.count ? begin + kSquareChunk : item.count;
    double sum = 0;
    if (item.values) sum = item.bf16 ? squares<__nv_bfloat16>(item, begin, end) : squares<float>(item, begin, end);
    if (threadIdx.x == 0) partials[item.first_chunk + c] = sum;
  }
}

// Grid: one block per sum.
__global__ void add_chunks(const double* partials, const int64_t* first_chunk, double* sums) {
  wait_for_previous_kernel();
  double sum = 0;
  const int64_t end = first_chunk[blockIdx.x + 1];
  for (int64_t c = first_chunk[blockIdx.x] + threadIdx.x; c < end; c += blockDim.x) sum += partials[c];
  sum = reduce_block(sum, Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Grid: a single block.
__global__ void settle_sums(NormRule rule, const double* sums, const double* decay, double* norm, double* factors) {
  wait_for_previous_kernel();
  double sum = 0;
  for (int64_t p = threadIdx.x; p < rule.params; p += blockDim.x) sum += sums[p];
  const double all = rule.gradient_scale * sqrt(reduce_block(sum, Sum{}));
  const double clipped = rule.clip / (all + 1e-6);
  const double of_gradients = rule.clip > 0 && !(clipped > 1) ? clipped : 1;
  if (threadIdx.x == 0) {
    *norm = all;
    factors[0] = of_gradients;
  }
  for (int64_t p = threadIdx.x; p < rule.params; p += blockDim.x) {
    factors[1 + p] = 1;
    if (!rule.lars || decay[p] < 0) continue;
    const double g = rule.gradient_scale * of_gradients * sqrt(sums[p]), w = sqrt(sums[rule.params + p]);
    if (g > 0 && w > 0) factors[1 + p] = rule.trust * w / (g + decay[p] * w + rule.eps);
  }
}

}  // namespace

void add_squares(Cuda, std::span<const SquareItem> all, NormMemory& memory, const Stream& stream) {
  constexpr int64_t kMostBlocks = 132 * 16;
  double* const partials = memory.partials.data<double>();
  for (size_t first = 0; first < all.size(); first += kParamsPerUpdate) {
    SquareItems items{};
    const size_t count = std::min<size_t>(kParamsPerUpdate, all.size() - first);
    int64_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      items.item[i] = all[first + i];
      most = std::max(most, (items.item[i].count + kSquareChunk - 1) / kSquareChunk);
    }
    launch(square_items, dim3(static_cast<unsigned>(std::min(most, kMostBlocks)), static_cast<unsigned>(count)),
           kSumThreads, stream, items, partials);
  }
  launch(add_chunks, static_cast<unsigned>(memory.sums.elements()), kSumThreads, stream, partials,
         memory.first_chunk.data<int64_t>(), memory.sums.data<double>());
}

void settle_norms(Cuda, const NormRule& rule, NormMemory& memory, Tensor& norm, const Stream& stream) {
  launch(settle_sums, 1, kSumThreads, stream, rule, memory.sums.data<double>(), memory.decay.data<double>(),
         norm.data<double>(), memory.factors.data<double>());
}

}  // namespace owt

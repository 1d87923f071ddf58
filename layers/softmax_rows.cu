#include <algorithm>

#include "layers/softmax_rows.cuh"
#include "src/core/elements.cuh"

namespace owt {
namespace {

constexpr unsigned kAdders = 256;  // threads that add the rows
constexpr int kTable = 64;         // most arrays that one launch checks

struct WatchTable {
  const void* values[kTable];
  int64_t count[kTable];
  int32_t layer[kTable];
  bool bf16[kTable];
  int arrays;
  int32_t* first;
};

struct ForHost {
  double* sums;
  int32_t* first;
};

__device__ bool is_finite(const WatchTable& table, int array, int64_t i) {
  const void* values = table.values[array];
  return isfinite(table.bf16[array] ? to_float(static_cast<const __nv_bfloat16*>(values)[i])
                                    : static_cast<const float*>(values)[i]);
}

// Called by all threads of a block. Its speed does not matter, because the run ends here.
__device__ void note_bad_layer(const WatchTable& table) {
  for (int array = 0; array < table.arrays; ++array) {
    bool bad = false;
    for (int64_t i = threadIdx.x; i < table.count[array] && !bad; i += blockDim.x) bad = !is_finite(table, array, i);
    if (__syncthreads_or(bad) && threadIdx.x == 0 && table.layer[array] < *table.first)
      *table.first = table.layer[array];
  }
}

// One block, so that the order of the additions depends only on the number of rows.
__global__ void add_results(const RowResult* results, int rows, double* sums, WatchTable table, ForHost for_host) {
  double loss = 0, top1 = 0, top5 = 0;
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += static_cast<int>(blockDim.x)) {
    loss += results[row].loss;
    top1 += results[row].top1;
    top5 += results[row].top5;
  }
  loss = reduce_block(loss, Sum{});
  top1 = reduce_block(top1, Sum{});
  top5 = reduce_block(top5, Sum{});
  if (threadIdx.x == 0) {
    sums[kLossSum] += loss;
    sums[kTop1Sum] += top1;
    sums[kTop5Sum] += top5;
    sums[kRowSum] += rows;
  }
  __syncthreads();
  if (!isfinite(sums[kLossSum])) note_bad_layer(table);
  if (threadIdx.x != 0) return;
  if (for_host.sums)
    for (int i = 0; i < kLossSums; ++i) for_host.sums[i] = sums[i];
  if (for_host.first) *for_host.first = *table.first;
}

template <class T>
T* data_or_null(Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

WatchTable table_of(std::span<const Watched> watched, int32_t* first) {
  WatchTable table{};
  table.first = first;
  for (const Watched& one : watched) {
    const int i = table.arrays++;
    table.values[i] = one.values.raw();
    table.count[i] = one.values.elements();
    table.layer[i] = one.layer;
    table.bf16[i] = one.values.dtype() == DType::kBF16;
  }
  return table;
}

}  // namespace

void add_rows(Cuda, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream& stream) {
  int32_t* const first = data_or_null<int32_t>(then.first);
  const ForHost for_host{data_or_null<double>(then.sums_for_host), data_or_null<int32_t>(then.first_for_host)};
  std::span<const Watched> watched = then.watched;
  auto rows = static_cast<int>(results.size());
  do {  // once, unless there are more arrays than one launch checks
    const auto now = watched.first(std::min<size_t>(watched.size(), kTable));
    launch(add_results, 1, kAdders, stream, results.data(), rows, sums.data<double>(), table_of(now, first), for_host);
    watched = watched.subspan(now.size());
    rows = 0;
  } while (!watched.empty());
}

}  // namespace owt

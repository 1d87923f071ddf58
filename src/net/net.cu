#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/net/net.h"

namespace owt {
namespace {

constexpr int kTable = 64;        // arrays per launch
constexpr unsigned kBlocks = 16;  // per array: as it almost never reads anything, few that start quickly

struct Table {
  const void* values[kTable];
  int64_t count[kTable];
  int32_t layer[kTable];
  bool bf16[kTable];
};

__global__ void note_bad(Table table, const double* sum, int32_t* first) {
  // A finite loss is the rule, and then nothing is read.
  if (isfinite(*sum)) return;
  const unsigned array = blockIdx.y;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < table.count[array]; i += stride) {
    const float value = table.bf16[array] ? to_float(static_cast<const __nv_bfloat16*>(table.values[array])[i])
                                          : static_cast<const float*>(table.values[array])[i];
    if (isfinite(value)) continue;
    atomicMin(first, table.layer[array]);
    return;
  }
}

}  // namespace

void note_bad_layer(Cuda, std::span<const Watched> watched, const double* sum, int32_t* first, const Stream& stream) {
  for (size_t begin = 0; begin < watched.size(); begin += kTable) {
    const size_t count = std::min<size_t>(kTable, watched.size() - begin);
    Table table{};
    for (size_t i = 0; i < count; ++i) {
      const Watched& one = watched[begin + i];
      table.values[i] = one.values.raw();
      table.count[i] = one.values.elements();
      table.layer[i] = one.layer;
      table.bf16[i] = one.values.dtype() == DType::kBF16;
    }
    launch(note_bad, dim3(kBlocks, static_cast<unsigned>(count)), kBlockThreads, stream, table, sum, first);
  }
}

}  // namespace owt

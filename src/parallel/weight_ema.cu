#include <algorithm>

#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/parallel/gradient_norms.h"
#include "src/parallel/weight_ema.h"

namespace owt {
namespace {

struct EmaItems {
  EmaItem item[kParamsPerUpdate];
};

// Grid: a row of blocks per item.
__global__ void ema_items(EmaItems items, const double* kept) {
  wait_for_previous_kernel();
  const EmaItem& item = items.item[blockIdx.y];
  const auto taken = static_cast<float>(1 - *kept);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < item.count; i += stride)
    item.average[i] += taken * (item.weight[i] - item.average[i]);
}

}  // namespace

void ema_update(Cuda, double, const Tensor& kept, std::span<const EmaItem> all, const Stream& stream) {
  for (size_t first = 0; first < all.size(); first += kParamsPerUpdate) {
    EmaItems items{};
    const size_t count = std::min<size_t>(kParamsPerUpdate, all.size() - first);
    int64_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      items.item[i] = all[first + i];
      most = std::max(most, items.item[i].count);
    }
    launch(ema_items, dim3(striding_blocks_for(most), static_cast<unsigned>(count)), kBlockThreads, stream, items,
           kept.data<double>());
  }
}

}  // namespace owt

#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/parallel/weight_copies.h"

namespace owt {
namespace {

__global__ void predict_kernel(const float* value, const float* velocity, float updates, float* predicted,
                               int64_t count) {
  wait_for_previous_kernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    predicted[i] = value[i] + updates * velocity[i];
}

}  // namespace

void predict(Cuda, const Tensor& value, const Tensor& velocity, int updates, Tensor& predicted, const Stream& stream) {
  launch(predict_kernel, striding_blocks_for(value.elements()), kBlockThreads, stream, value.data(), velocity.data(),
         static_cast<float>(updates), predicted.data(), value.elements());
}

}  // namespace owt

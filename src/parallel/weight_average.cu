#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/parallel/weight_average.h"

namespace owt {
namespace {

__global__ void scale_kernel(float* values, const double* factor, int64_t count) {
  wait_for_previous_kernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    values[i] = static_cast<float>(values[i] * *factor);
}

}  // namespace

void scale(Cuda, Tensor& values, const Tensor& factor, const Stream& stream) {
  launch(scale_kernel, striding_blocks_for(values.elements()), kBlockThreads, stream, values.data(),
         factor.data<double>(), values.elements());
}

}  // namespace owt

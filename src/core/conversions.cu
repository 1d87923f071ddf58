#include "src/core/conversions.h"
#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {
namespace {

// Elements from `first` on, in `packs` packs of N.
template <class From, class To, int N>
__global__ void convert_kernel(const From* from, To* to, int64_t first, int64_t packs) {
  wait_for_previous_kernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
    const Pack<From, N> pack = load_pack<From, N>(from + first + i * N);
    Pack<To, N> converted;
    for (int k = 0; k < N; ++k) converted.at[k] = from_float<To>(to_float(pack.at[k]));
    store_pack(to + first + i * N, converted);
  }
}

template <class From, class To>
void convert(const Tensor& from, Tensor& to, const Stream& stream) {
  constexpr int kWide = 4;
  OWT_CHECK_EQ(from.elements(), to.elements());
  const From* const source = from.data<From>();
  To* const target = to.data<To>();
  const int64_t packs = hold_packs<kWide>(source, target) ? from.elements() / kWide : 0;
  const int64_t first = packs * kWide, rest = from.elements() - first;
  launch(convert_kernel<From, To, kWide>, striding_blocks_for(packs), kBlockThreads, stream, source, target, 0, packs);
  launch(convert_kernel<From, To, 1>, striding_blocks_for(rest), kBlockThreads, stream, source, target, first, rest);
}

}  // namespace

void round_to_bf16(Cuda, const Tensor& f32, Tensor& bf16, const Stream& stream) {
  convert<float, __nv_bfloat16>(f32, bf16, stream);
}

void widen_to_f32(Cuda, const Tensor& bf16, Tensor& f32, const Stream& stream) {
  convert<__nv_bfloat16, float>(bf16, f32, stream);
}

}  // namespace owt

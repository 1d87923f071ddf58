#include "layers/branch_sums.h"

#include "layers/gpu/element_packs.cuh"

namespace owt {
namespace {

template <class T, int N>
__global__ void combine(int64_t elements, bool relu, const T* a, const T* b, T* y) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements,
      [=](float first, float second) {
        const float sum = first + second;
        return relu && sum < 0 ? 0.0f : sum;  // NaN stays NaN
      },
      y, a, b);
}

template <class T, int N>
__global__ void combine_where_positive(int64_t elements, const T* x, const T* a, const T* b, T* dx) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements, [](float in, float first, float second) { return in > 0 ? first + second : 0.0f; }, dx, x, a, b);
}

}  // namespace

void add_branches(Cuda, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream) {
  with_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>();
    T* to = y.data<T>();
    with_packs<T>(
        y.elements(),
        [&](auto width, unsigned blocks) {
          launch(combine<T, width>, blocks, kBlockThreads, stream, y.elements(), relu, first, second, to);
        },
        first, second, to);
  });
}

void add_where_positive(Cuda, const Tensor& a, const Tensor& b, const Tensor& x, Tensor& dx, const Stream& stream) {
  with_element(dx.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *in = x.data<T>(), *first = a.data<T>(), *second = b.data<T>();
    T* to = dx.data<T>();
    with_packs<T>(
        dx.elements(),
        [&](auto width, unsigned blocks) {
          launch(combine_where_positive<T, width>, blocks, kBlockThreads, stream, dx.elements(), in, first, second, to);
        },
        in, first, second, to);
  });
}

}  // namespace owt

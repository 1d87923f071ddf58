#include "src/net/residual.h"

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"

namespace owt {
namespace {

// Elements are dealt to threads in packs. Threads after the last pack take one each of the remaining elements.
__device__ int64_t this_thread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
template <int N>
int64_t threads_for(int64_t elements) {
  return elements / N + elements % N;
}

struct ElementSum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return from_float<T>(to_float(a) + to_float(b));
  }
};
struct PositiveSum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    const float sum = to_float(a) + to_float(b);
    return from_float<T>(sum < 0 ? 0 : sum);  // NaN stays NaN
  }
};

template <class T, int N, class Function>
__global__ void combine(int64_t elements, const T* a, const T* b, T* y) {
  const Function function;
  const int64_t thread = this_thread(), packs = elements / N;
  if (thread < packs) {
    Pack<T, N> pack = load_pack<T, N>(a + thread * N);
    const Pack<T, N> other = load_pack<T, N>(b + thread * N);
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = function(pack.at[j], other.at[j]);
    store_pack(y + thread * N, pack);
  } else if (const int64_t i = packs * N + thread - packs; i < elements) {
    y[i] = function(a[i], b[i]);
  }
}

template <class T>
__device__ T where_positive(T a, T b, T dy) {
  return to_float(a) + to_float(b) > 0 ? dy : from_float<T>(0);
}

template <class T, int N>
__global__ void gate(int64_t elements, const T* a, const T* b, const T* dy, T* dx) {
  const int64_t thread = this_thread(), packs = elements / N;
  if (thread < packs) {
    const Pack<T, N> first = load_pack<T, N>(a + thread * N), second = load_pack<T, N>(b + thread * N);
    Pack<T, N> pack = load_pack<T, N>(dy + thread * N);
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = where_positive(first.at[j], second.at[j], pack.at[j]);
    store_pack(dx + thread * N, pack);
  } else if (const int64_t i = packs * N + thread - packs; i < elements) {
    dx[i] = where_positive(a[i], b[i], dy[i]);
  }
}

// Calls function(Width<N>): N elements per pack, or 1 if an address is not aligned to packs.
template <int N>
struct Width {
  static constexpr int value = N;
};
template <class T, class Function, class... Addresses>
void with_width(const Function& function, const Addresses*... addresses) {
  if (hold_packs<kPack<T>>(addresses...))
    function(Width<kPack<T>>{});
  else
    function(Width<1>{});
}

template <class Function>
void queue_combine(const Tensor& a, const Tensor& b, Tensor& y, const Stream& stream) {
  with_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>();
    T* to = y.data<T>();
    with_width<T>(
        [&](auto width) {
          constexpr int kWidth = decltype(width)::value;
          launch(combine<T, kWidth, Function>, blocks_for(threads_for<kWidth>(y.elements())), kBlockThreads, stream,
                 y.elements(), first, second, to);
        },
        first, second, to);
  });
}

}  // namespace

void add_branches(Cuda, const Tensor& a, const Tensor& b, bool relu, Tensor& y, const Stream& stream) {
  if (relu)
    queue_combine<PositiveSum>(a, b, y, stream);
  else
    queue_combine<ElementSum>(a, b, y, stream);
}

void where_sum_is_positive(Cuda, const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& dx, const Stream& stream) {
  with_element(dx.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    with_width<T>(
        [&](auto width) {
          constexpr int kWidth = decltype(width)::value;
          launch(gate<T, kWidth>, blocks_for(threads_for<kWidth>(dx.elements())), kBlockThreads, stream, dx.elements(),
                 first, second, from, to);
        },
        first, second, from, to);
  });
}

}  // namespace owt

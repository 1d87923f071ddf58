#include "layers/branch_sums.h"

#include "layers/gpu/element_packs.cuh"
#include "layers/gpu/plane_sums.cuh"
#include "layers/gpu/pool_planes.cuh"

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
__global__ void difference(int64_t elements, float factor, const T* a, const T* b, T* y) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements, [=](float first, float second) { return factor * (first - second); }, y, a, b);
}

template <class T, int N>
__global__ void combine_where_positive(int64_t elements, const T* x, const T* a, const T* b, T* dx) {
  wait_for_previous_kernel();
  map_pack<T, N>(
      elements, [](float in, float first, float second) { return in > 0 ? first + second : 0.0f; }, dx, x, a, b);
}

// For threads of row_grid(rows, positions * channels / N).
template <class T, int N, bool kAdds>
__global__ void scale_channels_of(int rows, int positions, int channels, const T* x, const T* factors, T* y) {
  wait_for_previous_kernel();
  const int packs = channels / N;
  const RowItem at = row_item(rows, positions * packs);
  if (!at.inside) return;
  const int64_t index = (static_cast<int64_t>(at.row) * positions * packs + at.item) * N;
  const Pack<T, N> from = load_pack<T, N>(x + index);
  const Pack<T, N> by = load_pack<T, N>(factors + static_cast<int64_t>(at.row) * channels + at.item % packs * N);
  Pack<T, N> to;
  if constexpr (kAdds) to = load_pack<T, N>(y + index);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float product = to_float(from.at[j]) * to_float(by.at[j]);
    to.at[j] = from_float<T>(kAdds ? to_float(to.at[j]) + product : product);
  }
  store_pack(y + index, to);
}

template <class T, int N>
__global__ void __launch_bounds__(kBlockThreads)
    sum_products_of_channels(int positions, int channels, const T* x, const T* dy, T* sums) {
  wait_for_previous_kernel();
  sum_over_plane<N>(
      positions, channels,
      [=](int64_t index, float(&sum)[N]) {
        const Pack<T, N> a = load_pack<T, N>(x + index), b = load_pack<T, N>(dy + index);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += to_float(a.at[j]) * to_float(b.at[j]);
      },
      [=](int64_t index, float(&sum)[N]) { pooling::store_sum(sum, sums + index); });
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

void scale_difference(Cuda, const Tensor& a, const Tensor& b, float factor, Tensor& y, const Stream& stream) {
  with_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *first = a.data<T>(), *second = b.data<T>();
    T* to = y.data<T>();
    with_packs<T>(
        y.elements(),
        [&](auto width, unsigned blocks) {
          launch(difference<T, width>, blocks, kBlockThreads, stream, y.elements(), factor, first, second, to);
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

void scale_channels(Cuda, const Tensor& x, const Tensor& factors, bool adds, Tensor& y, const Stream& stream) {
  const int channels = pooling::to_int(factors.shape()[1]), rows = pooling::to_int(x.shape().rows());
  const int positions = pooling::to_int(x.shape().row_elements()) / channels;
  with_element(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *from = x.data<T>(), *by = factors.data<T>();
    T* to = y.data<T>();
    pooling::with_pack<T>(
        channels,
        [&](auto pack) {
          constexpr int N = pack();
          const RowGrid threads = row_grid(rows, int64_t{positions} * channels / N);
          launch(adds ? scale_channels_of<T, N, true> : scale_channels_of<T, N, false>, threads.grid, threads.block,
                 stream, rows, positions, channels, from, by, to);
        },
        from, by, to);
  });
}

void sum_channel_products(Cuda, const Tensor& x, const Tensor& dy, Tensor& sums, const Stream& stream) {
  const int channels = pooling::to_int(sums.shape()[1]), rows = pooling::to_int(x.shape().rows());
  const int positions = pooling::to_int(x.shape().row_elements()) / channels;
  with_element(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const T *a = x.data<T>(), *b = dy.data<T>();
    T* to = sums.data<T>();
    pooling::with_pack<T>(
        channels,
        [&](auto pack) {
          constexpr int N = pack();
          const PlaneGrid threads = plane_grid(rows, channels / N);
          launch(sum_products_of_channels<T, N>, threads.grid, threads.block, stream, positions, channels, a, b, to);
        },
        a, b, to);
  });
}

}  // namespace owt

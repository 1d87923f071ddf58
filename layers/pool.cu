#include "layers/pool.h"

#include <cstring>

#include "layers/pool_planes.cuh"

namespace owt {
namespace {

using namespace pooling;

// The largest of the pixels seen so far, for N channels, and where in their window they lie.
template <class T, int N, class Index, bool kKeepIndex>
struct Maxima {
  float best[N];
  int from[N];

  __device__ void start(const T* x, int place) {
    const Pack<T, N> pack = load_pack<T, N>(x);
#pragma unroll
    for (int c = 0; c < N; ++c) {
      best[c] = to_float(pack.at[c]);
      from[c] = place;
    }
  }
  __device__ void take(const T* x, int place) {
    const Pack<T, N> pack = load_pack<T, N>(x);
#pragma unroll
    for (int c = 0; c < N; ++c) {
      const float value = to_float(pack.at[c]);
      const bool wins = value > best[c] || value != value;  // the second comparison lets NaN win
      best[c] = wins ? value : best[c];
      from[c] = wins ? place : from[c];
    }
  }
  __device__ void store(T* y, Index* index) const {
    Pack<T, N> values;
    Pack<Index, N> places;
#pragma unroll
    for (int c = 0; c < N; ++c) {
      values.at[c] = from_float<T>(best[c]);
      places.at[c] = static_cast<Index>(from[c]);
    }
    store_pack(y, values);
    if constexpr (kKeepIndex) store_pack(index, places);
  }
};

// Two channels per instruction: one at a time, the comparisons would take longer than the memory. Places lie in the
// halves of a word, as the values do.
template <bool kKeepIndex>
struct Maxima<__nv_bfloat16, 8, uint8_t, kKeepIndex> {
  unsigned best[4], from[4];

  __device__ static unsigned twice(int place) { return static_cast<unsigned>(place) * 0x10001u; }
  __device__ static __nv_bfloat162 pair(unsigned word) {
    __nv_bfloat162 two;
    memcpy(static_cast<void*>(&two), &word, sizeof word);
    return two;
  }
  __device__ static unsigned word(__nv_bfloat162 pair) {
    unsigned bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
  }

  __device__ void start(const __nv_bfloat16* x, int place) {
    const Pack<__nv_bfloat16, 8> pack = load_pack<__nv_bfloat16, 8>(x);
    memcpy(best, &pack, sizeof best);
#pragma unroll
    for (int i = 0; i < 4; ++i) from[i] = twice(place);
  }
  __device__ void take(const __nv_bfloat16* x, int place) {
    const Pack<__nv_bfloat16, 8> pack = load_pack<__nv_bfloat16, 8>(x);
    unsigned words[4];
    memcpy(words, &pack, sizeof words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 values = pair(words[i]), so_far = pair(best[i]);
      if constexpr (kKeepIndex) {
        const unsigned wins = __hgt2_mask(values, so_far) | __hneu2_mask(values, values);
        from[i] = (twice(place) & wins) | (from[i] & ~wins);
      }
      best[i] = word(__hmax2_nan(so_far, values));
    }
  }
  __device__ void store(__nv_bfloat16* y, uint8_t* index) const {
    Pack<__nv_bfloat16, 8> values;
    memcpy(static_cast<void*>(&values), best, sizeof best);
    store_pack(y, values);
    if constexpr (kKeepIndex) {
      Pack<uint8_t, 8> places;
#pragma unroll
      for (int c = 0; c < 8; ++c) places.at[c] = static_cast<uint8_t>(from[c / 2] >> 16 * (c % 2));
      store_pack(index, places);
    }
  }
};

// kKernel: the window's extent where it is known to the compiler, else 0. Then the loop has neither ends nor branches,
// and all loads are under way at once: pixels beyond the image are replaced by the nearest one inside. That one is in
// the window too and keeps its own place, so that seeing it again changes nothing, and the order stays that of rows.
template <class T, int N, class Index, int kKernel, bool kKeepIndex>
__global__ void __launch_bounds__(kBlockThreads) max_pool_forward(Planes p, const T* x, T* y, Index* from) {
  const Pixel at = this_pixel<N>(p.rows, p.out_height, p.out_width, p.channels);
  if (!at.inside) return;
  const T* image = x + p.image(at.row) + at.c;
  const int top = p.start(at.i), left = p.start(at.j);
  Maxima<T, N, Index, kKeepIndex> maxima;
  if constexpr (kKernel > 0) {
#pragma unroll
    for (int h = 0; h < kKernel; ++h)
#pragma unroll
      for (int w = 0; w < kKernel; ++w) {
        const int ih = min(max(top + h, 0), p.height - 1), iw = min(max(left + w, 0), p.width - 1);
        const int place = (ih - top) * kKernel + iw - left;
        if (h + w == 0)
          maxima.start(image + p.pixel(ih, iw), place);
        else
          maxima.take(image + p.pixel(ih, iw), place);
      }
  } else {
    const Span down = p.pixels(at.i, p.height), across = p.pixels(at.j, p.width);
    maxima.start(image + p.pixel(down.begin, across.begin), (down.begin - top) * p.kernel + across.begin - left);
    for (int ih = down.begin; ih < down.end; ++ih)
      for (int iw = across.begin; iw < across.end; ++iw)
        maxima.take(image + p.pixel(ih, iw), (ih - top) * p.kernel + iw - left);
  }
  const int64_t out = p.out_image(at.row) + p.output(at.i, at.j) + at.c;
  maxima.store(y + out, kKeepIndex ? from + out : nullptr);
}

// sum += dy where the maximum came from `place`.
template <class T, int N, class Index>
__device__ void give(const Pack<T, N>& dy, const Pack<Index, N>& from, int place, float (&sum)[N]) {
#pragma unroll
  for (int c = 0; c < N; ++c)
    if (from.at[c] == static_cast<Index>(place)) sum[c] += to_float(dy.at[c]);
}

// Each pixel gathers from the windows over it.
template <class T, int N, class Index>
__global__ void __launch_bounds__(kBlockThreads) max_pool_backward(Planes p, const T* dy, const Index* from, T* dx) {
  const Pixel at = this_pixel<N>(p.rows, p.height, p.width, p.channels);
  if (!at.inside) return;
  const int64_t outputs = p.out_image(at.row) + at.c;
  const Span down = p.windows_over(at.i, p.out_height), across = p.windows_over(at.j, p.out_width);
  float sum[N] = {};
  for (int oh = down.begin; oh < down.end; ++oh)
    for (int ow = across.begin; ow < across.end; ++ow) {
      const int64_t out = outputs + p.output(oh, ow);
      const int place = (at.i - p.start(oh)) * p.kernel + at.j - p.start(ow);
      give(load_pack<T, N>(dy + out), load_pack<Index, N>(from + out), place, sum);
    }
  store_sum(sum, dx + p.image(at.row) + p.pixel(at.i, at.j) + at.c);
}

// Square tiles of stride x stride pixels that start where windows start. The windows over the pixels of tile t are t
// and the few before it, each loaded once for the whole tile.
struct Tiles {
  int down, across;
  explicit Tiles(const Planes& p)
      : down((p.height + p.pad - 1) / p.stride + 1), across((p.width + p.pad - 1) / p.stride + 1) {}
};

// The same as max_pool_backward, with a thread per tile and the window known to the compiler.
template <class T, int N, int kKernel, int kStride>
__global__ void __launch_bounds__(kBlockThreads)
    max_pool_backward_tiles(Planes p, Tiles tiles, const T* dy, const uint8_t* from, T* dx) {
  constexpr int kWindows = (kKernel - 1) / kStride + 1;  // over a tile, along one extent
  const Pixel at = this_pixel<N>(p.rows, tiles.down, tiles.across, p.channels);
  if (!at.inside) return;
  const int64_t outputs = p.out_image(at.row) + at.c;
  Pack<T, N> gradient[kWindows][kWindows];
  Pack<uint8_t, N> place[kWindows][kWindows];
#pragma unroll
  for (int h = 0; h < kWindows; ++h)
#pragma unroll
    for (int w = 0; w < kWindows; ++w) {
      const int oh = at.i - h, ow = at.j - w;
      gradient[h][w] = {};
      place[h][w] = {};
      if (oh < 0 || oh >= p.out_height || ow < 0 || ow >= p.out_width) continue;
      gradient[h][w] = load_pack<T, N>(dy + outputs + p.output(oh, ow));
      place[h][w] = load_pack<uint8_t, N>(from + outputs + p.output(oh, ow));
    }
#pragma unroll
  for (int a = 0; a < kStride; ++a)
#pragma unroll
    for (int b = 0; b < kStride; ++b) {
      float sum[N] = {};
#pragma unroll
      for (int h = kWindows - 1; h >= 0; --h)
#pragma unroll
        for (int w = kWindows - 1; w >= 0; --w) {
          const int down = a + h * kStride, across = b + w * kStride;  // the pixel in window (h, w)
          if (down < kKernel && across < kKernel) give(gradient[h][w], place[h][w], down * kKernel + across, sum);
        }
      const int ih = p.start(at.i) + a, iw = p.start(at.j) + b;
      if (ih >= 0 && ih < p.height && iw >= 0 && iw < p.width)
        store_sum(sum, dx + p.image(at.row) + p.pixel(ih, iw) + at.c);
    }
}

template <class T, class Index>
class CudaMaxPool : public Op {
 public:
  CudaMaxPool(const Window& window, const Shape& in)
      : p_(window, in),
        from_({p_.rows, p_.out_height, p_.out_width, p_.channels}, DTypeOf<Index>::value, Device::kCuda) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_pack<T>(
        p_.channels,
        [&](auto pack) {
          constexpr int N = pack();
          if (pass.mode == Mode::kTrain)
            run<N, true>(pass, x, y);
          else
            run<N, false>(pass, x, y);
        },
        x.data<T>(), y.data<T>(), from_.template data<Index>());
  }

  void backward(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_pack<T>(
        p_.channels, [&](auto pack) { run_backward<pack()>(pass, dy, *dx); }, dy.data<T>(), dx->data<T>(),
        from_.template data<Index>());
  }

 private:
  // The windows of 2 and 3 pixels are those of nearly all networks.
  template <int N, bool kKeepIndex>
  void run(const Pass& pass, const Tensor& x, Tensor& y) {
    if constexpr (N > 1 && sizeof(Index) == 1) {
      if (p_.kernel == 2) return start<N, 2, kKeepIndex>(pass, x, y);
      if (p_.kernel == 3) return start<N, 3, kKeepIndex>(pass, x, y);
    }
    start<N, 0, kKeepIndex>(pass, x, y);
  }

  template <int N, int kKernel, bool kKeepIndex>
  void start(const Pass& pass, const Tensor& x, Tensor& y) {
    const RowGrid threads = row_grid(int64_t{p_.rows} * p_.out_height, int64_t{p_.out_width} * p_.channels / N);
    launch(max_pool_forward<T, N, Index, kKernel, kKeepIndex>, threads.grid, threads.block, *pass.stream, p_,
           x.data<T>(), y.data<T>(), from_.template data<Index>());
  }

  template <int N>
  void run_backward(const Pass& pass, const Tensor& dy, Tensor& dx) {
    if constexpr (N > 1 && sizeof(Index) == 1) {
      if (p_.kernel == 2 && p_.stride == 2) return start_tiles<N, 2, 2>(pass, dy, dx);
      if (p_.kernel == 3 && p_.stride == 2) return start_tiles<N, 3, 2>(pass, dy, dx);
    }
    const RowGrid threads = row_grid(int64_t{p_.rows} * p_.height, int64_t{p_.width} * p_.channels / N);
    launch(max_pool_backward<T, N, Index>, threads.grid, threads.block, *pass.stream, p_, dy.data<T>(),
           from_.template data<Index>(), dx.data<T>());
  }

  template <int N, int kKernel, int kStride>
  void start_tiles(const Pass& pass, const Tensor& dy, Tensor& dx) {
    const Tiles tiles(p_);
    const RowGrid threads = row_grid(int64_t{p_.rows} * tiles.down, int64_t{tiles.across} * p_.channels / N);
    launch(max_pool_backward_tiles<T, N, kKernel, kStride>, threads.grid, threads.block, *pass.stream, p_, tiles,
           dy.data<T>(), from_.template data<Index>(), dx.data<T>());
  }

  Planes p_;
  Tensor from_;  // which position of its window a maximum came from, counted in row order
};

}  // namespace

std::unique_ptr<Op> bind_max_pool(Cuda cuda, const Window& window, const Shape& in) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision), [&](auto element) {
    using T = decltype(element);
    // One byte per output is a quarter of the traffic; only windows beyond 16 x 16 need more.
    if (window.kernel * window.kernel <= 256)
      op = std::make_unique<CudaMaxPool<T, uint8_t>>(window, in);
    else
      op = std::make_unique<CudaMaxPool<T, int32_t>>(window, in);
  });
  return op;
}

}  // namespace owt

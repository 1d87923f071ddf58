#include "layers/pool.h"

#include <cstring>

#include "layers/gpu/channels.cuh"
#include "layers/gpu/pool_planes.cuh"

namespace owt {
namespace {

using namespace pooling;

// The place of a window's maximum if its gradient goes to no pixel. Bytes must stay below 0x80 (differing()).
template <class Index>
constexpr Index kNowhere = static_cast<Index>(sizeof(Index) == 1 ? 0x7f : 0x7fffffff);

// The largest pixels seen so far, for N channels, and their places in their window.
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
  // positive: store a place for positive maxima only.
  __device__ void store(T* y, Index* index, bool positive) const {
    Pack<T, N> values;
    Pack<Index, N> places;
#pragma unroll
    for (int c = 0; c < N; ++c) {
      values.at[c] = from_float<T>(best[c]);
      places.at[c] = positive && !(best[c] > 0) ? kNowhere<Index> : static_cast<Index>(from[c]);
    }
    store_pack(y, values);
    if constexpr (kKeepIndex) store_pack(index, places);
  }
};

// Two channels per instruction; with one, the comparisons would take longer than the memory accesses. Places are stored
// in the halves of a word, like the values.
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
  __device__ void store(__nv_bfloat16* y, uint8_t* index, bool positive) const {
    Pack<__nv_bfloat16, 8> values;
    memcpy(static_cast<void*>(&values), best, sizeof best);
    store_pack(y, values);
    if constexpr (kKeepIndex) {
      const unsigned any = positive ? 0 : ~0u;
      const __nv_bfloat162 zero = pair(0);
      Pack<uint8_t, 8> places;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned kept = __hgt2_mask(pair(best[i]), zero) | any;
        const unsigned two = (from[i] & kept) | (twice(kNowhere<uint8_t>) & ~kept);
        places.at[2 * i] = static_cast<uint8_t>(two);
        places.at[2 * i + 1] = static_cast<uint8_t>(two >> 16);
      }
      store_pack(index, places);
    }
  }
};

// kKernel: the window's extent as a compile-time constant, or 0. If it is known, the loop has neither bounds checks nor
// branches, and all loads are in flight at once. Pixels beyond the image are replaced by the nearest one inside. That
// pixel is in the window too and keeps its own place, so seeing it again changes nothing, and the order stays the row
// order.
template <class T, int N, class Index, int kKernel, bool kKeepIndex>
__global__ void __launch_bounds__(kBlockThreads)
    max_pool_forward(CudaPoolGeometry p, bool positive, const T* x, T* y, Index* from) {
  wait_for_previous_kernel();
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
    const WindowRange down = p.pixels(at.i, p.height), across = p.pixels(at.j, p.width);
    maxima.start(image + p.pixel(down.begin, across.begin), (down.begin - top) * p.kernel + across.begin - left);
    for (int ih = down.begin; ih < down.end; ++ih)
      for (int iw = across.begin; iw < across.end; ++iw)
        maxima.take(image + p.pixel(ih, iw), (ih - top) * p.kernel + iw - left);
  }
  const int64_t out = p.out_image(at.row) + p.output(at.i, at.j) + at.c;
  maxima.store(y + out, kKeepIndex ? from + out : nullptr, positive);
}

constexpr int kMostResident = 4;  // the largest kResident below

// The gradient of the pixels, as works of layers/gpu/channels.cuh. With kSum it is summed per channel.

// Each pixel gathers from the windows over it.
template <class T, int N, class Index, bool kSum>
struct PixelGradient {
  static constexpr int kWidth = N, kSums = kSum ? 1 : 0, kResident = !kSum ? 1 : sizeof(Index) == 1 ? 4 : 3;
  CudaPoolGeometry p;
  const T* dy;
  const Index* from;
  T* dx;

  __device__ int prepare(int channel) const { return channel; }
  __device__ void at(int64_t position, int64_t index, int channel, float (&sums)[kMaxSums][N]) const {
    const PixelPlace pixel = p.place(position, p.height, p.width);
    const int64_t outputs = p.out_image(pixel.row) + channel;
    const WindowRange down = p.windows_over(pixel.i, p.out_height), across = p.windows_over(pixel.j, p.out_width);
    float sum[N] = {};
    for (int oh = down.begin; oh < down.end; ++oh)
      for (int ow = across.begin; ow < across.end; ++ow) {
        const int64_t out = outputs + p.output(oh, ow);
        const Pack<T, N> gradient = load_pack<T, N>(dy + out);
        const Pack<Index, N> places = load_pack<Index, N>(from + out);
        const int place = (pixel.i - p.start(oh)) * p.kernel + pixel.j - p.start(ow);
#pragma unroll
        for (int c = 0; c < N; ++c)
          if (places.at[c] == static_cast<Index>(place)) sum[c] += to_float(gradient.at[c]);
      }
    store_sum(sum, dx + index);
    if constexpr (kSum)
      for (int c = 0; c < N; ++c) sums[0][c] += sum[c];
  }
};

// Square tiles of stride x stride pixels that start where windows start. The windows over the pixels of tile t are
// window t and the few before it; each is loaded once for the whole tile.
struct PixelTiles {
  int down, across;
  explicit PixelTiles(const CudaPoolGeometry& p)
      : down((p.height + p.pad - 1) / p.stride + 1), across((p.width + p.pad - 1) / p.stride + 1) {}
};

// Sets the highest bit of each byte that differs from `place`. Four bytes at once, because single bytes would take
// longer than the memory accesses. Bytes and `place` are below 0x80.
__device__ inline unsigned differing(unsigned bytes, int place) {
  unsigned highest = (bytes ^ static_cast<unsigned>(place) * 0x01010101u) + 0x7f7f7f7fu;
  asm("" : "+r"(highest));  // keeps the compiler from splitting the four
  return highest;
}

template <int N>
__device__ void unpack(const Pack<float, N>& pack, float (&values)[N]) {
  memcpy(values, &pack, sizeof values);
}
// Unpacks by words; by elements it would take 1.5 times as many instructions.
template <int N>
__device__ void unpack(const Pack<__nv_bfloat16, N>& pack, float (&values)[N]) {
  unsigned words[N / 2];
  memcpy(words, &pack, sizeof words);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// Like PixelGradient, but by tiles and with a compile-time window.
template <class T, int N, int kKernel, int kStride, bool kSum>
struct TileGradient {
  static constexpr int kWindows = (kKernel - 1) / kStride + 1;  // windows over a tile, along one extent
  static constexpr int kWidth = N, kSums = kSum ? 1 : 0, kResident = !kSum ? 1 : kWindows == 1 ? 4 : 3;
  struct Loaded {
    Pack<T, N> gradient;
    Pack<unsigned, N / 4> places;  // one byte for each channel
  };
  CudaPoolGeometry p;
  PixelTiles tiles;
  const T* dy;
  const uint8_t* from;
  T* dx;

  __device__ int prepare(int channel) const { return channel; }

  // If there is no such window, a window without gradient: without a branch all loads are in flight at once.
  __device__ Loaded load(int64_t outputs, int oh, int ow) const {
    const int h = min(max(oh, 0), p.out_height - 1), w = min(max(ow, 0), p.out_width - 1);
    const int64_t out = outputs + p.output(h, w);
    Loaded window{load_pack<T, N>(dy + out), load_pack<unsigned, N / 4>(reinterpret_cast<const unsigned*>(from + out))};
#pragma unroll
    for (unsigned& four : window.places.at) four = h == oh && w == ow ? four : kNowhere<uint8_t> * 0x01010101u;
    return window;
  }

  // Adds the gradient to sum, or sets sum if `first`, for channels whose maximum came from `place`.
  __device__ static void give(const Loaded& window, int place, bool first, float (&sum)[N]) {
    float gradient[N];
    unpack(window.gradient, gradient);
#pragma unroll
    for (int c = 0; c < N; ++c) {
      const bool mine = (differing(window.places.at[c / 4], place) & 0x80u << 8 * (c % 4)) == 0;
      if (first)
        sum[c] = mine ? gradient[c] : 0;
      else if (mine)
        sum[c] += gradient[c];
    }
  }

  __device__ void at(int64_t position, int64_t, int channel, float (&sums)[kMaxSums][N]) const {
    const PixelPlace tile = p.place(position, tiles.down, tiles.across);
    const int64_t outputs = p.out_image(tile.row) + channel;
    Loaded windows[kWindows][kWindows];
#pragma unroll
    for (int h = 0; h < kWindows; ++h)
#pragma unroll
      for (int w = 0; w < kWindows; ++w) windows[h][w] = load(outputs, tile.i - h, tile.j - w);
    T* image = dx + p.image(tile.row) + channel;
#pragma unroll
    for (int a = 0; a < kStride; ++a)
#pragma unroll
      for (int b = 0; b < kStride; ++b) {
        float sum[N];
        bool first = true;
#pragma unroll
        for (int h = kWindows - 1; h >= 0; --h)
#pragma unroll
          for (int w = kWindows - 1; w >= 0; --w) {
            const int down = a + h * kStride, across = b + w * kStride;  // the pixel's place in window (h, w)
            if (down >= kKernel || across >= kKernel) continue;
            give(windows[h][w], down * kKernel + across, first, sum);
            first = false;
          }
        const int ih = p.start(tile.i) + a, iw = p.start(tile.j) + b;
        if (ih >= 0 && ih < p.height && iw >= 0 && iw < p.width) store_sum(sum, image + p.pixel(ih, iw));
        if constexpr (kSum)
#pragma unroll
          for (int c = 0; c < N; ++c) sums[0][c] += sum[c];
      }
  }
};

// kRelu: x is the output of a relu, with or without a bias before it.
template <class T, class Index, bool kRelu>
class CudaMaxPool : public Op {
 public:
  CudaMaxPool(const Window& window, const Shape& in, Param* bias)
      : p_(window, in),
        tiles_(p_),
        bias_(bias),
        from_({p_.rows, p_.out_height, p_.out_width, p_.channels}, DTypeOf<Index>::value, Device::kCuda) {
    if (kRelu)
      sums_ = SumBuffers(std::max(p_.places(p_.height, p_.width), p_.places(tiles_.down, tiles_.across)), p_.channels,
                         1, kMostResident);
  }

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

  void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_pack<T>(
        p_.channels, [&](auto pack) { run_backward<pack()>(pass, dy, *dx); }, dy.data<T>(), dx->data<T>(),
        from_.template data<Index>());
  }

 private:
  // Nearly all networks use windows of 2 or 3 pixels.
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
    launch(max_pool_forward<T, N, Index, kKernel, kKeepIndex>, threads.grid, threads.block, *pass.stream, p_, kRelu,
           x.data<T>(), y.data<T>(), from_.template data<Index>());
  }

  template <int N>
  void run_backward(const Pass& pass, const Tensor& dy, Tensor& dx) {
    const Index* from = from_.template data<Index>();
    if constexpr (N > 1 && sizeof(Index) == 1) {
      if (p_.kernel == 2 && p_.stride == 2) return run_tiles<N, 2, 2>(pass, dy, dx);
      if (p_.kernel == 3 && p_.stride == 2) return run_tiles<N, 3, 2>(pass, dy, dx);
    }
    run_work(pass, PixelGradient<T, N, Index, kRelu>{p_, dy.data<T>(), from, dx.data<T>()},
             p_.places(p_.height, p_.width));
  }

  template <int N, int kKernel, int kStride>
  void run_tiles(const Pass& pass, const Tensor& dy, Tensor& dx) {
    run_work(pass,
             TileGradient<T, N, kKernel, kStride, kRelu>{p_, tiles_, dy.data<T>(), from_.template data<Index>(),
                                                         dx.data<T>()},
             p_.places(tiles_.down, tiles_.across));
  }

  template <class Work>
  void run_work(const Pass& pass, const Work& work, int64_t positions) {
    if constexpr (kRelu)
      queue_over_channels(work, positions, p_.channels, *pass.stream, AddToGrad(bias_), sums_.memory());
    else
      queue_over_channels(work, positions, p_.channels, *pass.stream);
  }

  CudaPoolGeometry p_;
  PixelTiles tiles_;
  Param* bias_;  // its gradient is the sum of dx; or null
  Tensor from_;  // place of each maximum in its window, in row order
  SumBuffers sums_;
};

template <bool kRelu>
std::unique_ptr<Op> bind_pool(Cuda cuda, const Window& window, const Shape& in, Param* bias) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision), [&](auto element) {
    using T = decltype(element);
    // One byte per output needs a quarter of the memory traffic; windows beyond 11 x 11 need more.
    if (window.kernel * window.kernel <= kNowhere<uint8_t>)
      op = std::make_unique<CudaMaxPool<T, uint8_t, kRelu>>(window, in, bias);
    else
      op = std::make_unique<CudaMaxPool<T, int32_t, kRelu>>(window, in, bias);
  });
  return op;
}

}  // namespace

std::unique_ptr<Op> bind_max_pool(Cuda cuda, const Window& window, const Shape& in) {
  return bind_pool<false>(cuda, window, in, nullptr);
}

std::unique_ptr<Op> bind_relu_max_pool(Cuda cuda, const Window& window, const Shape& in, Param* bias) {
  return bind_pool<true>(cuda, window, in, bias);
}

}  // namespace owt

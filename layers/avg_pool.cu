#include "layers/gpu/channels.cuh"
#include "layers/gpu/plane_sums.cuh"
#include "layers/gpu/pool_planes.cuh"
#include "layers/pool.h"

namespace owt {
namespace {

using namespace pooling;

// The windows of means.
struct MeanWindows : CudaPoolGeometry {
  bool counts_pad;

  MeanWindows(const Window& window, const Shape& in) : CudaPoolGeometry(window, in), counts_pad(window.counts_pad) {}

  // Positions of window `out` that count: the positions inside the padded extent, or the pixels.
  __device__ int positions(int out, int extent) const {
    const WindowRange inside = pixels(out, extent);
    return counts_pad ? min(start(out) + kernel, extent + pad) - start(out) : inside.end - inside.begin;
  }
  __device__ float inverse_positions(int oh, int ow) const {
    return 1.0f / static_cast<float>(positions(oh, height) * positions(ow, width));
  }
};

template <class T, int N>
__device__ void add(const T* x, float scale, float (&sum)[N]) {
  const Pack<T, N> pack = load_pack<T, N>(x);
#pragma unroll
  for (int c = 0; c < N; ++c) sum[c] += scale * to_float(pack.at[c]);
}

template <class T, int N>
__global__ void __launch_bounds__(kBlockThreads) avg_pool_forward(MeanWindows p, const T* x, T* y) {
  wait_for_previous_kernel();
  const Pixel at = this_pixel<N>(p.rows, p.out_height, p.out_width, p.channels);
  if (!at.inside) return;
  const T* image = x + p.image(at.row) + at.c;
  const WindowRange down = p.pixels(at.i, p.height), across = p.pixels(at.j, p.width);
  float sum[N] = {};
  for (int ih = down.begin; ih < down.end; ++ih)
    for (int iw = across.begin; iw < across.end; ++iw) add(image + p.pixel(ih, iw), 1.0f, sum);
  const float scale = p.inverse_positions(at.i, at.j);
#pragma unroll
  for (int c = 0; c < N; ++c) sum[c] *= scale;
  store_sum(sum, y + p.out_image(at.row) + p.output(at.i, at.j) + at.c);
}

// Each pixel gathers from the windows over it. With kRelu, x is the output of a relu: the gradient is 0 where x is not
// positive, and it is summed per channel when it is stored.
template <class T, int N, bool kRelu>
struct AverageGradient {
  static constexpr int kWidth = N, kSums = kRelu ? 1 : 0, kResident = kRelu ? 4 : 1;
  MeanWindows p;
  const T *x, *dy;
  T* dx;

  __device__ int prepare(int channel) const { return channel; }
  __device__ void at(int64_t position, int64_t index, int channel, float (&sums)[kMaxSums][N]) const {
    const PixelPlace at = p.place(position, p.height, p.width);
    const T* outputs = dy + p.out_image(at.row) + channel;
    const WindowRange down = p.windows_over(at.i, p.out_height), across = p.windows_over(at.j, p.out_width);
    float sum[N] = {};
    for (int oh = down.begin; oh < down.end; ++oh)
      for (int ow = across.begin; ow < across.end; ++ow)
        add(outputs + p.output(oh, ow), p.inverse_positions(oh, ow), sum);
    if constexpr (kRelu) {
      const Pack<T, N> in = load_pack<T, N>(x + index);
#pragma unroll
      for (int c = 0; c < N; ++c) {
        if (!(to_float(in.at[c]) > 0)) sum[c] = 0;
        sums[0][c] += to_float(from_float<T>(sum[c]));
      }
    }
    store_sum(sum, dx + index);
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kBlockThreads)
    global_avg_pool_forward(int positions, int channels, const T* x, T* y) {
  wait_for_previous_kernel();
  sum_over_plane<N>(
      positions, channels, [=](int64_t index, float(&sum)[N]) { add(x + index, 1.0f, sum); },
      [=](int64_t index, float(&sum)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] /= static_cast<float>(positions);
        store_sum(sum, y + index);
      });
}

// For threads of row_grid(rows, positions * channels / N).
template <class T, int N>
__global__ void __launch_bounds__(kBlockThreads)
    global_avg_pool_backward(int rows, int positions, int channels, float scale, const T* dy, T* dx) {
  wait_for_previous_kernel();
  const int packs = channels / N;
  const RowItem at = row_item(rows, positions * packs);
  if (!at.inside) return;
  float gradient[N] = {};
  add(dy + static_cast<int64_t>(at.row) * channels + at.item % packs * N, scale, gradient);
  store_sum(gradient, dx + (static_cast<int64_t>(at.row) * positions * packs + at.item) * N);
}

// kRelu: x is the output of a relu, with or without a bias before it.
template <class T, bool kRelu>
class CudaAvgPool : public Op {
 public:
  CudaAvgPool(const Window& window, const Shape& in, Param* bias) : p_(window, in), bias_(bias) {
    if (kRelu)
      sums_ = SumBuffers(p_.places(p_.height, p_.width), p_.channels, 1, AverageGradient<T, 1, true>::kResident);
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_pack<T>(
        p_.channels,
        [&](auto pack) {
          constexpr int N = pack();
          const RowGrid threads = row_grid(int64_t{p_.rows} * p_.out_height, int64_t{p_.out_width} * p_.channels / N);
          launch(avg_pool_forward<T, N>, threads.grid, threads.block, *pass.stream, p_, x.data<T>(), y.data<T>());
        },
        x.data<T>(), y.data<T>());
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_pack<T>(
        p_.channels,
        [&](auto pack) {
          const AverageGradient<T, pack(), kRelu> work{p_, x.data<T>(), dy.data<T>(), dx->data<T>()};
          const int64_t positions = p_.places(p_.height, p_.width);
          if constexpr (kRelu)
            queue_over_channels(work, positions, p_.channels, *pass.stream, AddToGrad(bias_), sums_.memory());
          else
            queue_over_channels(work, positions, p_.channels, *pass.stream);
        },
        x.data<T>(), dy.data<T>(), dx->data<T>());
  }

 private:
  MeanWindows p_;
  Param* bias_;  // its gradient is the sum of dx; or null
  SumBuffers sums_;
};

template <class T>
class CudaGlobalAvgPool : public Op {
 public:
  explicit CudaGlobalAvgPool(const Shape& in)
      : rows_(to_int(in[0])), positions_(to_int(in[1] * in[2])), channels_(to_int(in[3])) {
    to_int(in.row_elements());  // indexes within an image are ints
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_pack<T>(
        channels_,
        [&](auto pack) {
          constexpr int N = pack();
          const PlaneGrid threads = plane_grid(rows_, channels_ / N);
          launch(global_avg_pool_forward<T, N>, threads.grid, threads.block, *pass.stream, positions_, channels_,
                 x.data<T>(), y.data<T>());
        },
        x.data<T>(), y.data<T>());
  }

  void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    const float scale = 1.0f / static_cast<float>(positions_);
    with_pack<T>(
        channels_,
        [&](auto pack) {
          constexpr int N = pack();
          const RowGrid threads = row_grid(rows_, int64_t{positions_} * channels_ / N);
          launch(global_avg_pool_backward<T, N>, threads.grid, threads.block, *pass.stream, rows_, positions_,
                 channels_, scale, dy.data<T>(), dx->data<T>());
        },
        dy.data<T>(), dx->data<T>());
  }

 private:
  int rows_, positions_, channels_;
};

}  // namespace

std::unique_ptr<Op> bind_avg_pool(Cuda cuda, const Window& window, const Shape& in) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision), [&](auto element) {
    op = std::make_unique<CudaAvgPool<decltype(element), false>>(window, in, nullptr);
  });
  return op;
}

std::unique_ptr<Op> bind_relu_avg_pool(Cuda cuda, const Window& window, const Shape& in, Param* bias) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = std::make_unique<CudaAvgPool<decltype(element), true>>(window, in, bias); });
  return op;
}

std::unique_ptr<Op> bind_global_avg_pool(Cuda cuda, const Shape& in) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = std::make_unique<CudaGlobalAvgPool<decltype(element)>>(in); });
  return op;
}

}  // namespace owt

#include "layers/lrn.h"

#include <algorithm>

#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/core/row_grid.cuh"

namespace owt {
namespace {

// s^-beta and 1 / s: by square roots for the beta that allow it, by pow for others.
struct Powers {
  float of_beta, inverse;
};
struct CudaPowerHalf {
  __device__ Powers operator()(float s) const {
    const float root = rsqrtf(s);
    return {root, root * root};
  }
};
struct CudaPowerThreeQuarters {
  __device__ Powers operator()(float s) const {
    const float root = rsqrtf(s);
    // Two rsqrtf, because an exact square root takes longer. The argument of the second is kept above 0; an infinite s
    // would make it 0.
    return {root * root * rsqrtf(fmaxf(root, 1e-30f)), root * root};
  }
};
struct CudaPowerOne {
  __device__ Powers operator()(float s) const { return {1.0f / s, 1.0f / s}; }
};
struct CudaPowerAny {
  float beta;
  __device__ Powers operator()(float s) const { return {powf(s, -beta), 1.0f / s}; }
};

struct Formula {
  float k, per_size;  // s = k + per_size * sum of squares
  float factor;       // 2 * alpha * beta / size
};

// Narrow windows: `size` is odd and a compile-time constant. A thread holds N channels and their neighbours in
// registers. A pixel is read from memory once; the neighbours come from the cache, because other threads read them too.

// values[i] = x[i - kReach], where x is at channel c of its pixel; 0 outside the channels.
template <class T, int N, int kReach>
__device__ void load_around(const T* x, int c, int channels, float (&values)[N + 2 * kReach]) {
  Pack<T, kReach> left{}, right{};
  const Pack<T, N> own = load_pack<T, N>(x);
  if (c > 0) left = load_pack<T, kReach>(x - kReach);
  if (c + N < channels) right = load_pack<T, kReach>(x + N);
#pragma unroll
  for (int i = 0; i < kReach; ++i) {
    values[i] = to_float(left.at[i]);
    values[kReach + N + i] = to_float(right.at[i]);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) values[kReach + i] = to_float(own.at[i]);
}

// sums[c] = values[c] + ... + values[c + 2 * kReach]
template <int N, int kReach>
__device__ void sum_windows(const float (&values)[N + 2 * kReach], float (&sums)[N]) {
#pragma unroll
  for (int c = 0; c < N; ++c) {
    sums[c] = values[c];
#pragma unroll
    for (int j = 1; j <= 2 * kReach; ++j) sums[c] += values[c + j];
  }
}

// The scales s of N channels; their values come after kReach neighbours.
template <int N, int kReach>
__device__ void scales_of(const float (&values)[N + 2 * kReach], Formula formula, float (&scales)[N]) {
  float squares[N + 2 * kReach];
#pragma unroll
  for (int i = 0; i < N + 2 * kReach; ++i) squares[i] = values[i] * values[i];
  sum_windows<N, kReach>(squares, scales);
#pragma unroll
  for (int c = 0; c < N; ++c) scales[c] = formula.k + formula.per_size * scales[c];
}

template <class T, int N, int kReach, class Power>
__global__ void __launch_bounds__(kBlockThreads)
    lrn_forward_narrow(int pixels, int channels, Formula formula, Power power, const T* x, T* y) {
  wait_for_previous_kernel();
  const RowItem at = row_item(pixels, channels / N);
  if (!at.inside) return;
  const int64_t i = static_cast<int64_t>(at.row) * channels + at.item * N;
  float values[N + 2 * kReach], scales[N];
  load_around<T, N, kReach>(x + i, at.item * N, channels, values);
  scales_of<N, kReach>(values, formula, scales);
  Pack<T, N> result;
#pragma unroll
  for (int c = 0; c < N; ++c) result.at[c] = from_float<T>(values[kReach + c] * power(scales[c]).of_beta);
  store_pack(y + i, result);
}

// A block has whole pixels. The terms of neighbours come from the adjacent threads, because computing them again would
// take longer than the memory accesses.
template <class T, int N, int kReach, class Power>
__global__ void __launch_bounds__(kBlockThreads)
    lrn_backward_narrow(int pixels, int channels, Formula formula, Power power, const T* x, const T* dy, T* dx) {
  wait_for_previous_kernel();
  static_assert(kReach <= N);
  __shared__ float first_terms[kBlockThreads][kReach], last_terms[kBlockThreads][kReach];
  const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
  const RowItem at = row_item(pixels, channels / N);
  const int64_t i = static_cast<int64_t>(at.row) * channels + at.item * N;
  float values[N + 2 * kReach], direct[N], terms[N + 2 * kReach];
  if (at.inside) {
    float scales[N];
    load_around<T, N, kReach>(x + i, at.item * N, channels, values);
    const Pack<T, N> gradient = load_pack<T, N>(dy + i);
    scales_of<N, kReach>(values, formula, scales);
#pragma unroll
    for (int c = 0; c < N; ++c) {
      const Powers powers = power(scales[c]);
      direct[c] = to_float(gradient.at[c]) * powers.of_beta;
      terms[kReach + c] = direct[c] * values[kReach + c] * powers.inverse;
    }
#pragma unroll
    for (int j = 0; j < kReach; ++j) {
      first_terms[me][j] = terms[kReach + j];
      last_terms[me][j] = terms[N + j];
    }
  }
  __syncthreads();
  if (!at.inside) return;
  const bool is_first = at.item == 0, is_last = (at.item + 1) * N == channels;
#pragma unroll
  for (int j = 0; j < kReach; ++j) {
    terms[j] = is_first ? 0.0f : last_terms[me - 1][j];
    terms[kReach + N + j] = is_last ? 0.0f : first_terms[me + 1][j];
  }
  float sums[N];
  sum_windows<N, kReach>(terms, sums);
  Pack<T, N> result;
#pragma unroll
  for (int c = 0; c < N; ++c) result.at[c] = from_float<T>(direct[c] - formula.factor * values[kReach + c] * sums[c]);
  store_pack(dx + i, result);
}

// Any window: one thread for each element reads its neighbours from the cache. A reach is the window at a position and
// channel. It sums function(j) over the elements j of the window; `pixel` is the index of the position's first channel.

struct ChannelReach {
  int before, after;  // channels of a window before and after its own

  __host__ __device__ ChannelReach mirrored() const { return {after, before}; }
  template <class Function>
  __device__ float sum(int64_t pixel, const RowItem& at, int channels, const Function& function) const {
    float sum = 0;
    for (int j = max(at.item - before, 0); j <= min(at.item + after, channels - 1); ++j) sum += function(pixel + j);
    return sum;
  }
};

struct PlaneReach {
  int before, after;  // rows and columns of a window before and after its own
  int height, width;

  __host__ __device__ PlaneReach mirrored() const { return {after, before, height, width}; }
  template <class Function>
  __device__ float sum(int64_t pixel, const RowItem& at, int channels, const Function& function) const {
    const int w = at.row % width, h = at.row / width % height;
    float sum = 0;
    for (int i = max(h - before, 0); i <= min(h + after, height - 1); ++i)
      for (int j = max(w - before, 0); j <= min(w + after, width - 1); ++j)
        sum += function(pixel + at.item + (int64_t{i - h} * width + j - w) * channels);
    return sum;
  }
};

template <class T, class Reach>
__device__ float scale_at(const T* x, int64_t pixel, const RowItem& at, int channels, const Reach& reach,
                          Formula formula) {
  const float squares = reach.sum(pixel, at, channels, [=](int64_t j) {
    const float value = to_float(x[j]);
    return value * value;
  });
  return formula.k + formula.per_size * squares;
}

template <class T, class Reach, class Power>
__global__ void lrn_forward_wide(int pixels, int channels, Reach reach, Formula formula, Power power, const T* x,
                                 T* y) {
  wait_for_previous_kernel();
  const RowItem at = row_item(pixels, channels);
  if (!at.inside) return;
  const int64_t pixel = static_cast<int64_t>(at.row) * channels;
  const Powers powers = power(scale_at(x, pixel, at, channels, reach, formula));
  y[pixel + at.item] = from_float<T>(to_float(x[pixel + at.item]) * powers.of_beta);
}

// terms = dy * x * s^(-beta - 1)
template <class T, class Reach, class Power>
__global__ void lrn_terms_wide(int pixels, int channels, Reach reach, Formula formula, Power power, const T* x,
                               const T* dy, float* terms) {
  wait_for_previous_kernel();
  const RowItem at = row_item(pixels, channels);
  if (!at.inside) return;
  const int64_t pixel = static_cast<int64_t>(at.row) * channels, i = pixel + at.item;
  const Powers powers = power(scale_at(x, pixel, at, channels, reach, formula));
  terms[i] = to_float(dy[i]) * powers.of_beta * to_float(x[i]) * powers.inverse;
}

template <class T, class Reach, class Power>
__global__ void lrn_backward_wide(int pixels, int channels, Reach reach, Formula formula, Power power, const T* x,
                                  const T* dy, const float* terms, T* dx) {
  wait_for_previous_kernel();
  const RowItem at = row_item(pixels, channels);
  if (!at.inside) return;
  const int64_t pixel = static_cast<int64_t>(at.row) * channels, i = pixel + at.item;
  const Powers powers = power(scale_at(x, pixel, at, channels, reach, formula));
  // The windows that hold an element mirror the element's own window.
  const float sum = reach.mirrored().sum(pixel, at, channels, [=](int64_t j) { return terms[j]; });
  dx[i] = from_float<T>(to_float(dy[i]) * powers.of_beta - formula.factor * to_float(x[i]) * sum);
}

Formula formula_of(const LrnSettings& settings) {
  return {settings.k, settings.per_square(), 2 * settings.beta * settings.per_square()};
}

template <class T, int kReach, class Power>
class NarrowLrn : public Op {
 public:
  static constexpr int N = kPack<T>;

  NarrowLrn(const LrnSettings& settings, Power power, int64_t pixels, int64_t channels)
      : formula_(formula_of(settings)),
        power_(power),
        pixels_(pixels),
        channels_(channels),
        threads_(row_grid(pixels, channels / N)) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    OWT_CHECK(hold_packs<N>(x.data<T>(), y.data<T>()), "images start at multiples of 16 bytes");
    launch(lrn_forward_narrow<T, N, kReach, Power>, threads_.grid, threads_.block, *pass.stream, pixels_, channels_,
           formula_, power_, x.data<T>(), y.data<T>());
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    OWT_CHECK(hold_packs<N>(x.data<T>(), dy.data<T>(), dx->data<T>()), "images start at multiples of 16 bytes");
    launch(lrn_backward_narrow<T, N, kReach, Power>, threads_.grid, threads_.block, *pass.stream, pixels_, channels_,
           formula_, power_, x.data<T>(), dy.data<T>(), dx->data<T>());
  }

 private:
  Formula formula_;
  Power power_;
  int64_t pixels_, channels_;
  RowGrid threads_;
};

template <class T, class Reach, class Power>
class WideLrn : public Op {
 public:
  WideLrn(const LrnSettings& settings, const Reach& reach, Power power, int64_t pixels, int64_t channels)
      : formula_(formula_of(settings)),
        power_(power),
        reach_(reach),
        pixels_(pixels),
        channels_(channels),
        threads_(row_grid(pixels, channels)) {}

  int64_t scratch_bytes(Phase phase) const override {
    return phase == Phase::kBackward ? pixels_ * channels_ * size_of(DType::kF32) : 0;
  }

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    launch(lrn_forward_wide<T, Reach, Power>, threads_.grid, threads_.block, *pass.stream, pixels_, channels_, reach_,
           formula_, power_, x.data<T>(), y.data<T>());
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    float* terms = reinterpret_cast<float*>(pass.scratch_at(0));
    launch(lrn_terms_wide<T, Reach, Power>, threads_.grid, threads_.block, *pass.stream, pixels_, channels_, reach_,
           formula_, power_, x.data<T>(), dy.data<T>(), terms);
    launch(lrn_backward_wide<T, Reach, Power>, threads_.grid, threads_.block, *pass.stream, pixels_, channels_, reach_,
           formula_, power_, x.data<T>(), dy.data<T>(), terms, dx->data<T>());
  }

 private:
  Formula formula_;
  Power power_;
  Reach reach_;
  int64_t pixels_, channels_;
  RowGrid threads_;
};

template <class T, class Power>
std::unique_ptr<Op> bind_with(Power power, const LrnSettings& settings, const Shape& in) {
  const int64_t channels = in[in.rank() - 1], pixels = in.elements() / channels;
  if (lrn_has_narrow_kernels(settings, channels, DTypeOf<T>::value)) {
    if (settings.size == 3) return std::make_unique<NarrowLrn<T, 1, Power>>(settings, power, pixels, channels);
    return std::make_unique<NarrowLrn<T, 2, Power>>(settings, power, pixels, channels);
  }
  // A window never holds more than the whole extent.
  const auto at_most = [](int64_t reach, int64_t all) { return static_cast<int>(std::min(reach, all)); };
  const int64_t before = settings.size / 2, after = (settings.size - 1) / 2;
  if (settings.within) {
    const int64_t extent = std::max(in[1], in[2]);
    const PlaneReach reach{at_most(before, extent), at_most(after, extent), static_cast<int>(in[1]),
                           static_cast<int>(in[2])};
    return std::make_unique<WideLrn<T, PlaneReach, Power>>(settings, reach, power, pixels, channels);
  }
  const ChannelReach reach{at_most(before, channels), at_most(after, channels)};
  return std::make_unique<WideLrn<T, ChannelReach, Power>>(settings, reach, power, pixels, channels);
}

template <class T>
std::unique_ptr<Op> bind_element(const LrnSettings& settings, const Shape& in) {
  if (settings.beta == 0.5f) return bind_with<T>(CudaPowerHalf{}, settings, in);
  if (settings.beta == 0.75f) return bind_with<T>(CudaPowerThreeQuarters{}, settings, in);
  if (settings.beta == 1.0f) return bind_with<T>(CudaPowerOne{}, settings, in);
  return bind_with<T>(CudaPowerAny{settings.beta}, settings, in);
}

}  // namespace

std::unique_ptr<Op> bind_lrn(Cuda cuda, const LrnSettings& settings, const Shape& in) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = bind_element<decltype(element)>(settings, in); });
  return op;
}

}  // namespace owt

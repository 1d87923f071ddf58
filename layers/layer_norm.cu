#include "layers/layer_norm.h"

#include "layers/gpu/channels.cuh"
#include "src/core/grid.h"

namespace owt {
namespace {

constexpr unsigned kLayerNormWarp = 32, kPositionsOfBlock = kBlockThreads / kLayerNormWarp;

// The sum of a number of each thread of the warp; all of them get it.
__device__ inline float sum_in_warp(float value) {
  for (unsigned distance = kLayerNormWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, static_cast<int>(distance));
  return value;
}

// A warp for each position. Its threads take packs of N channels in turns; the values of a position come from the cache
// after the first pass.
struct LayerNormPosition {
  int64_t position;
  int first, step;  // channels

  __device__ static LayerNormPosition of_warp(int n) {
    const unsigned lane = threadIdx.x % kLayerNormWarp;
    return {static_cast<int64_t>(blockIdx.x) * kPositionsOfBlock + threadIdx.x / kLayerNormWarp,
            static_cast<int>(lane) * n, static_cast<int>(kLayerNormWarp) * n};
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_forward(int64_t positions, int channels, float eps, const float* weight, const float* bias, const T* x,
                       T* y, float* means, float* inverses) {
  wait_for_previous_kernel();
  const LayerNormPosition at = LayerNormPosition::of_warp(N);
  if (at.position >= positions) return;
  const T* from = x + at.position * channels;
  T* to = y + at.position * channels;
  float sum = 0, squares = 0;
  for (int c = at.first; c < channels; c += at.step) {
    const Pack<T, N> pack = load_pack<T, N>(from + c);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += to_float(pack.at[j]);
  }
  const float mean = sum_in_warp(sum) / static_cast<float>(channels);
  for (int c = at.first; c < channels; c += at.step) {
    const Pack<T, N> pack = load_pack<T, N>(from + c);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float centred = to_float(pack.at[j]) - mean;
      squares += centred * centred;
    }
  }
  const float inverse = 1.0f / sqrtf(sum_in_warp(squares) / static_cast<float>(channels) + eps);
  if (at.first == 0) {
    means[at.position] = mean;
    inverses[at.position] = inverse;
  }
  for (int c = at.first; c < channels; c += at.step) {
    float scale[N], shift[N];
    load_numbers<N>(weight + c, scale);
    load_numbers<N>(bias + c, shift);
    Pack<T, N> pack = load_pack<T, N>(from + c);
#pragma unroll
    for (int j = 0; j < N; ++j)
      pack.at[j] = from_float<T>(fmaf((to_float(pack.at[j]) - mean) * inverse, scale[j], shift[j]));
    store_pack(to + c, pack);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_backward(int64_t positions, int channels, const float* weight, const T* x, const T* dy,
                        const float* means, const float* inverses, T* dx) {
  wait_for_previous_kernel();
  const LayerNormPosition at = LayerNormPosition::of_warp(N);
  if (at.position >= positions) return;
  const int64_t first = at.position * channels;
  const float mean = means[at.position], inverse = inverses[at.position];
  float gradients = 0, products = 0;
  for (int c = at.first; c < channels; c += at.step) {
    const Pack<T, N> in = load_pack<T, N>(x + first + c), gradient = load_pack<T, N>(dy + first + c);
    float scale[N];
    load_numbers<N>(weight + c, scale);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float scaled = to_float(gradient.at[j]) * scale[j];
      gradients += scaled;
      products += scaled * (to_float(in.at[j]) - mean) * inverse;
    }
  }
  const float shift = sum_in_warp(gradients) / static_cast<float>(channels);
  const float tilt = sum_in_warp(products) / static_cast<float>(channels);
  for (int c = at.first; c < channels; c += at.step) {
    const Pack<T, N> in = load_pack<T, N>(x + first + c), gradient = load_pack<T, N>(dy + first + c);
    float scale[N];
    load_numbers<N>(weight + c, scale);
    Pack<T, N> result;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float normal = (to_float(in.at[j]) - mean) * inverse;
      result.at[j] = from_float<T>((to_float(gradient.at[j]) * scale[j] - shift - normal * tilt) * inverse);
    }
    store_pack(dx + first + c, result);
  }
}

// Sums dy * (x - mean) / std and dy over the positions.
template <class T, int kPackWidth>
struct LayerNormSums {
  static constexpr int kWidth = kPackWidth, kSums = 2, kResident = 4;
  const T *x, *dy;
  const float *means, *inverses;

  __device__ int prepare(int channel) const { return channel; }
  __device__ void at(int64_t position, int64_t index, int, float (&sums)[kMaxSums][kWidth]) const {
    const float mean = means[position], inverse = inverses[position];
    const Pack<T, kWidth> in = load_pack<T, kWidth>(x + index), gradient = load_pack<T, kWidth>(dy + index);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float value = to_float(gradient.at[j]);
      sums[0][j] += value * (to_float(in.at[j]) - mean) * inverse;
      sums[1][j] += value;
    }
  }
};

struct LayerNormGradients {
  AddToGrad weight, bias;

  __device__ void operator()(int channel, const double* sums) const {
    weight(channel, sums);
    bias(channel, sums + 1);
  }
};

template <class T>
class CudaLayerNorm : public Op {
 public:
  CudaLayerNorm(LayerNormParams params, double eps, const Shape& in)
      : params_(params),
        eps_(static_cast<float>(eps)),
        channels_(in[in.rank() - 1]),
        positions_(in.elements() / channels_),
        means_({positions_}, DType::kF32, Device::kCuda),
        inverses_({positions_}, DType::kF32, Device::kCuda),
        sums_(positions_, channels_, 2, LayerNormSums<T, 1>::kResident) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_width<T>(channels_, {x.raw(), y.raw()}, [&](auto, auto width) {
      launch(layer_norm_forward<T, width>, grid(), dim3(kBlockThreads), *pass.stream, positions_,
             static_cast<int>(channels_), eps_, params_.weight.value.data(), params_.bias.value.data(), x.data<T>(),
             y.data<T>(), means_.data(), inverses_.data());
    });
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_width<T>(channels_, {x.raw(), dy.raw(), dx->raw()}, [&](auto, auto width) {
      launch(layer_norm_backward<T, width>, grid(), dim3(kBlockThreads), *pass.stream, positions_,
             static_cast<int>(channels_), params_.weight.value.data(), x.data<T>(), dy.data<T>(), means_.data(),
             inverses_.data(), dx->data<T>());
    });
  }

  void backward_weights(const Pass& pass, const Tensor& x, const Tensor& dy) override {
    with_width<T>(channels_, {x.raw(), dy.raw()}, [&](auto, auto width) {
      const LayerNormSums<T, width> work{x.data<T>(), dy.data<T>(), means_.data(), inverses_.data()};
      const LayerNormGradients finish{AddToGrad(&params_.weight), AddToGrad(&params_.bias)};
      queue_over_channels(work, positions_, channels_, *pass.stream, finish, sums_.memory());
    });
  }

 private:
  dim3 grid() const { return dim3(blocks_for(positions_, kPositionsOfBlock)); }

  LayerNormParams params_;
  float eps_;
  int64_t channels_, positions_;
  Tensor means_, inverses_;  // forward stores them for backward, for each position
  SumBuffers sums_;
};

}  // namespace

std::unique_ptr<Op> bind_layer_norm(Cuda cuda, LayerNormParams params, double eps, const Shape& in) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = std::make_unique<CudaLayerNorm<decltype(element)>>(params, eps, in); });
  return op;
}

}  // namespace owt

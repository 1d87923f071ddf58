#include "layers/prelu.h"

#include <optional>

#include "layers/gpu/channels.cuh"

namespace owt {
namespace {

// The slopes of kPackWidth channels.
template <int kPackWidth>
struct Slopes {
  float at[kPackWidth];
};

template <class T, int kPackWidth>
struct PreluForward {
  static constexpr int kWidth = kPackWidth, kSums = 0, kResident = 5;
  const float* weight;
  const T* x;
  T* y;

  __device__ Slopes<kWidth> prepare(int channel) const {
    Slopes<kWidth> slopes;
    load_numbers<kWidth>(weight + channel, slopes.at);
    return slopes;
  }
  __device__ void at(int64_t, int64_t index, const Slopes<kWidth>& slopes, float (&)[kMaxSums][kWidth]) const {
    Pack<T, kWidth> pack = load_pack<T, kWidth>(x + index);
    for (int i = 0; i < kWidth; ++i) {
      const float value = to_float(pack.at[i]);
      if (!(value > 0)) pack.at[i] = from_float<T>(slopes.at[i] * value);
    }
    store_pack(y + index, pack);
  }
};

// Computes dx if wanted, and the sums of dy * x where x is not positive.
template <class T, int kPackWidth>
struct PreluBackward {
  static constexpr int kWidth = kPackWidth, kSums = 1, kResident = 5;
  const float* weight;
  const T *x, *dy;
  T* dx;

  __device__ Slopes<kWidth> prepare(int channel) const {
    Slopes<kWidth> slopes;
    load_numbers<kWidth>(weight + channel, slopes.at);
    return slopes;
  }
  __device__ void at(int64_t, int64_t index, const Slopes<kWidth>& slopes, float (&sums)[kMaxSums][kWidth]) const {
    const Pack<T, kWidth> input = load_pack<T, kWidth>(x + index);
    Pack<T, kWidth> pack = load_pack<T, kWidth>(dy + index);
    for (int i = 0; i < kWidth; ++i) {
      const float value = to_float(input.at[i]), gradient = to_float(pack.at[i]);
      if (value > 0) continue;
      sums[0][i] += gradient * value;
      pack.at[i] = from_float<T>(slopes.at[i] * gradient);
    }
    if (dx) store_pack(dx + index, pack);
  }
};

constexpr int kPreluBlocks = PreluBackward<float, 1>::kResident;

template <class T>
class CudaPrelu : public Op {
 public:
  // A shared slope is treated as the slope of one channel that has all elements.
  CudaPrelu(Param& weight, const Shape& in)
      : weight_(weight),
        channels_(weight.full_shape.elements() == 1 ? 1 : in[in.rank() - 1]),
        positions_(channels_ == 0 ? 0 : in.elements() / channels_),
        sums_(positions_, channels_, 1, kPreluBlocks) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_width<T>(channels_, {x.raw(), y.raw()}, [&](auto, auto width) {
      const PreluForward<T, width> work{weight_.value.data(), x.data<T>(), y.data<T>()};
      queue_over_channels(work, positions_, channels_, *pass.stream);
    });
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor&, const Tensor& dy, Tensor* dx) override {
    T* const to = dx ? dx->data<T>() : nullptr;
    with_width<T>(channels_, {x.raw(), dy.raw(), to}, [&](auto, auto width) {
      const PreluBackward<T, width> work{weight_.value.data(), x.data<T>(), dy.data<T>(), to};
      queue_over_channels(work, positions_, channels_, *pass.stream, AddToGrad(&weight_), sums_.memory());
    });
  }

 private:
  Param& weight_;
  int64_t channels_, positions_;
  SumBuffers sums_;
};

}  // namespace

std::unique_ptr<Op> bind_prelu(Cuda cuda, Param& weight, const Shape& in) {
  std::unique_ptr<Op> op;
  with_element(activation_type(cuda.precision),
               [&](auto element) { op = std::make_unique<CudaPrelu<decltype(element)>>(weight, in); });
  return op;
}

}  // namespace owt

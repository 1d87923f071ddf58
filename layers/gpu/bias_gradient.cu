#include "layers/gpu/bias_gradient.h"

#include "layers/gpu/channels.cuh"

namespace owt {
namespace {

enum class Follows { kNothing, kRelu, kReluDropout };

// Sums dy per channel. After a relu, dy is first set to 0 where y is not positive. After a relu and a dropout, dy is
// also multiplied by the scale where y is positive, because there the dropout kept the element.
template <class T, int kPackWidth, Follows kFollows>
struct SumGradient {
  static constexpr int kWidth = kPackWidth, kSums = 1, kResident = 5;
  const T* y;
  T* dy;
  float scale;

  __device__ int prepare(int channel) const { return channel; }
  __device__ void at(int64_t, int64_t index, int, float (&sums)[kMaxSums][kWidth]) const {
    Pack<T, kWidth> gradient = load_pack<T, kWidth>(dy + index);
    if constexpr (kFollows != Follows::kNothing) {
      const Pack<T, kWidth> out = load_pack<T, kWidth>(y + index);
      for (int i = 0; i < kWidth; ++i) {
        if constexpr (kFollows == Follows::kReluDropout)
          gradient.at[i] = from_float<T>(scale * to_float(gradient.at[i]));
        if (!(to_float(out.at[i]) > 0)) gradient.at[i] = from_float<T>(0);
      }
      store_pack(dy + index, gradient);
    }
    for (int i = 0; i < kWidth; ++i) sums[0][i] += to_float(gradient.at[i]);
  }
};

constexpr int kResidentBlocks = SumGradient<float, 1, Follows::kNothing>::kResident;

class ChannelBiasGradient : public BiasGradient {
 public:
  ChannelBiasGradient(int64_t positions, int64_t channels, Param* bias, std::optional<FollowingRelu> relu)
      : positions_(positions),
        channels_(channels),
        bias_(bias),
        relu_(relu),
        sums_(positions, channels, 1, kResidentBlocks) {}

  void queue(const Stream& stream, const Tensor& y, const Tensor& dy) override {
    if (!relu_)
      queue_after<Follows::kNothing>(stream, y, dy);
    else if (relu_->scale == 1)
      queue_after<Follows::kRelu>(stream, y, dy);
    else
      queue_after<Follows::kReluDropout>(stream, y, dy);
  }

 private:
  template <Follows kFollows>
  void queue_after(const Stream& stream, const Tensor& y, Tensor dy) {
    with_element(dy.dtype(), [&](auto element) {
      with_width<decltype(element)>(channels_, {relu_ ? y.raw() : nullptr, dy.raw()}, [&](auto t, auto width) {
        using T = decltype(t);
        const SumGradient<T, width, kFollows> work{relu_ ? y.data<T>() : nullptr, dy.data<T>(),
                                                   relu_ ? relu_->scale : 1};
        queue_over_channels(work, positions_, channels_, stream, AddToGrad(bias_), sums_.memory());
      });
    });
  }

  int64_t positions_, channels_;
  Param* bias_;
  std::optional<FollowingRelu> relu_;
  SumBuffers sums_;
};

}  // namespace

std::unique_ptr<BiasGradient> make_bias_gradient(int64_t positions, int64_t channels, Param* bias,
                                                 std::optional<FollowingRelu> relu) {
  if (!relu && !(bias && learns(bias->role))) return nullptr;
  return std::make_unique<ChannelBiasGradient>(positions, channels, bias, relu);
}

}  // namespace owt

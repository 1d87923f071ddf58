#include "layers/bias_gradient.h"

#include "layers/channels.cuh"
#include "layers/conv_kernels.cuh"

namespace owt {

int64_t bias_gradient_scratch(int64_t positions, int64_t channels) { return partial_sums(positions, channels, 1); }

void queue_bias_gradient(const Stream& stream, int64_t positions, int64_t channels, const Tensor* y, Tensor& dy,
                         Tensor& scratch, Param* bias) {
  with_element(dy.dtype(), [&](auto element) {
    with_width<decltype(element)>(channels, {y ? y->raw() : nullptr, dy.raw()}, [&](auto t, auto width) {
      using T = decltype(t);
      const ChannelTiles tiles(positions, channels, width);
      float* sums = scratch.data();
      if (y)
        queue_over_channels(BiasGradient<T, width, true>{y->data<T>(), dy.data<T>()}, tiles, sums, stream);
      else
        queue_over_channels(BiasGradient<T, width, false>{nullptr, dy.data<T>()}, tiles, sums, stream);
      if (bias) queue_finish<1>(AddToGrad{bias->grad.data(), bias->take_beta()}, tiles, sums, stream);
    });
  });
}

}  // namespace owt

// The gradient of a bias that is added at every position of a channels-last tensor, on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "layers/base/param.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

// The layers after the bias: a relu, and possibly a dropout that multiplies kept elements by `scale`.
struct FollowingRelu {
  float scale = 1;
};

class BiasGradient {
 public:
  virtual ~BiasGradient() = default;

  // Adds the sum of dy over all positions to the bias gradient (f32, [channels]), or overwrites it if it counts as
  // zero. If a relu follows the bias, dy is first multiplied by the scale where y is positive, and set to 0 elsewhere.
  // So dy becomes the gradient of the relu's input. y (output of the relu or dropout) and dy: [positions, channels],
  // both f32 or both bf16. The order of summation depends only on the extents and the type.
  virtual void queue(const Stream& stream, const Tensor& y, const Tensor& dy) = 0;
};

// bias may be null or frozen; it must outlive the result. Returns null if there is neither a trained bias nor a relu.
std::unique_ptr<BiasGradient> make_bias_gradient(int64_t positions, int64_t channels, Param* bias,
                                                 std::optional<FollowingRelu> relu);

}  // namespace owt

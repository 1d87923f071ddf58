// The gradient of a bias that was added to every position of a channels-last tensor, on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "layers/param.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

// What follows the bias: a relu, then maybe a dropout that multiplies what it keeps by `scale`.
struct ReluBehind {
  float scale = 1;
};

class BiasGradient {
 public:
  virtual ~BiasGradient() = default;

  // The bias' gradient (f32, [channels]) gets the sum of dy over all positions: added, or in its place where it counts
  // as zero. Behind a relu dy is first multiplied by the scale where y is positive, and set to 0 elsewhere: it becomes
  // the gradient of what the relu was given. y, the output of the relu or the dropout, and dy: [positions, channels],
  // both f32 or both bf16. The order of the sum depends on the extents and the type only.
  virtual void queue(const Stream& stream, const Tensor& y, const Tensor& dy) = 0;
};

// bias may be null, or frozen; it must outlive the result, which is null where there is neither one that learns nor a
// relu.
std::unique_ptr<BiasGradient> make_bias_gradient(int64_t positions, int64_t channels, Param* bias,
                                                 std::optional<ReluBehind> relu);

}  // namespace owt

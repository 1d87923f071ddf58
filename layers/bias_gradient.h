// The gradient of a bias that was added to every position of a channels-last tensor, on a GPU.
#pragma once

#include <cstdint>

#include "layers/param.h"
#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

// Floats of scratch memory for sums.
int64_t bias_gradient_scratch(int64_t positions, int64_t channels);

// bias->grad (f32, [channels]) gets the sum of dy over all positions: added, or in its place where it counts as zero.
// With y, the output of a relu behind the bias, dy is first set to 0 where y is not positive: it becomes the gradient
// of what the relu was given. bias may be null where there is a y. y and dy: [positions, channels], both f32 or both
// bf16. The order of the sum depends on the extents and the type only.
void queue_bias_gradient(const Stream& stream, int64_t positions, int64_t channels, const Tensor* y, Tensor& dy,
                         Tensor& scratch, Param* bias);

}  // namespace owt

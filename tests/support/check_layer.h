// Checks the contract of a layer (layers/base/layer.h) with GoogleTest expectations:
//   - out_shape is the shape that forward fills, in training and in evaluation; every element of y and dx is written.
//   - On the CPU, dx and the gradients of all trained parameters agree with central differences of a random linear
//     functional of y. On any other device, y and all gradients agree with the CPU in every precision; inputs and
//     parameters are numbers that the precision represents exactly.
//   - dx is complete after backward_data, and backward_weights does not change it.
//   - Backward adds to parameter gradients, overwrites gradients that count as zero, overwrites dx, and allows dx to be
//     null.
//   - x is not changed. A layer that is not in place does not read y in backward. An in-place layer gives the same bits
//     with y = x and dx = dy.
//   - Results are bit-identical every time and from a second op, and equal for any team size.
//   - The parts of a layer that can be split compute the same as the whole layer.
//   - Parameters are named after the layer; conversion to file order and back is the identity.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "layers/base/layer.h"

namespace owt {

struct LayerCheck {
  double step = 1e-2;       // for differences; where a layer compares inputs, they must be further apart
  double tolerance = 1e-2;  // for a gradient and its numeric value, relative to the value and to the root mean square
  double exactness = 1e-4;  // for results that may be summed in another order, relative to max(1, value)
  // Tolerance of bf16 results against f32, relative to the larger of the root mean square and the value. For tf32 an
  // eighth.
  double rounding = 0x1p-7;
  // false: a composite layer, which rounds activations between its layers. A rounded zero may get any gradient, and
  // terms that cancel in f32 may not cancel. So in bf16 and tf32 results must only be written.
  bool rounds_once = true;
  int64_t samples = 200;  // number of varied elements of x and of each parameter
  // Inputs are distinct, evenly spaced in +-range, and at least 0.05 * range away from 0. A layer that compares inputs
  // needs a range for which any two are more than two steps apart.
  double input_range = 2;
};

void check_layer(const std::string& keys, const Shape& in, Device device, const LayerCheck& options = {});

// For a layer that is not in the registry; `make` makes the whole layer or a part of its output features.
using MakeLayer = std::function<std::unique_ptr<Layer>(std::optional<Slice> part)>;
void check_layer(const MakeLayer& make, const Shape& in, Device device, const LayerCheck& options = {});

// Distinct values in random order, evenly spaced in +-range except for a gap around 0; a function of the arguments.
std::vector<float> distinct_values(int64_t count, double range, uint64_t seed);

}  // namespace owt

// The contract of a layer (layers/layer.h), checked with GoogleTest expectations:
//   - out_shape is the shape that forward fills, in training and in evaluation, and every element of y and dx is
//     written;
//   - dx and the gradients of all trained parameters are those of central differences of a random linear functional of
//     y, on the CPU; on any other device y and all gradients are the CPU's, in every precision, where inputs and
//     parameters are numbers that it holds exactly;
//   - dx is complete behind backward_data, and backward_weights leaves it alone;
//   - backward adds to parameter gradients, overwrites those that count as zero, overwrites dx, and allows no dx;
//   - x is not changed; a layer that is not in place does not read y in backward; an in-place one gives the same bits
//     with y = x and dx = dy;
//   - the same bits every time and from a second op; the same values for any team size;
//   - the parts of a layer that can be split compute what the whole does;
//   - parameters are named after the layer, and file order and back is the identity.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "layers/layer.h"

namespace owt {

struct LayerCheck {
  double step = 1e-2;       // of the differences; inputs must not lie closer together where a layer compares them
  double tolerance = 1e-2;  // of a gradient against its numeric one, relative to it and to the root mean square of all
  double exactness = 1e-5;  // of results that may be summed in another order, relative to the larger of 1 and the value
  // Of results in bf16 against f32, relative to the larger of their root mean square and the value. In tf32 an eighth.
  double rounding = 0x1p-7;
  // false: a composite, which rounds what goes from one of its layers to the next. A rounded zero may get any gradient,
  // and what cancels in f32 does not then, so in bf16 and tf32 results need only be written.
  bool rounds_once = true;
  int64_t samples = 200;  // elements of x and of each parameter that are varied
  // Inputs are distinct, evenly spaced in +-range, and 0.05 * range or more away from 0. A layer that
  // compares them needs a range that leaves more than two steps between any two of them.
  double input_range = 2;
};

void check_layer(const std::string& keys, const Shape& in, Device device, const LayerCheck& options = {});

// For a layer that is not in the registry; `make` makes it whole, or a part of its output features.
using MakeLayer = std::function<std::unique_ptr<Layer>(std::optional<Slice> part)>;
void check_layer(const MakeLayer& make, const Shape& in, Device device, const LayerCheck& options = {});

// Distinct values in random order, evenly spaced in +-range but for a gap around 0; a function of the
// arguments.
std::vector<float> distinct_values(int64_t count, double range, uint64_t seed);

}  // namespace owt

// The parameters of the layers that are linear maps (conv, dense): a weight and, unless switched off, a bias.
#pragma once

#include <optional>
#include <vector>

#include "layers/layer.h"

namespace owt {

constexpr int64_t kMostOutputs = 1 << 24;  // that a layer can have

// The weight's extents; dimension 0 of both shapes is the outputs.
struct LinearWeight {
  Shape full_shape, file_shape;
  int64_t fan_in = 1, fan_out = 1;
  Slice part;                        // the outputs that are kept here
  std::optional<Slice> inputs = {};  // the input features that are kept here, in memory order; none: all
};

// Reads the keys init (xavier), lr, decay (of the weight) and bias: true, false, or a table with the same three keys,
// init being constant 0. Returns `name.weight` and, with a bias, `name.bias`. Among parts that hold other inputs of the
// same outputs the first has the whole bias and the others none of it, so that it is added once. Throws Error for a
// weight of more than 2^40 elements.
std::vector<Param> read_linear_params(const LayerSpec& spec, const LinearWeight& weight);

}  // namespace owt

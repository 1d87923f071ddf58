// The parameters of linear layers (conv, dense): a weight and, unless disabled, a bias.
#pragma once

#include <optional>
#include <vector>

#include "layers/base/layer.h"

namespace owt {

constexpr int64_t kMostOutputs = 1 << 24;  // limit on the outputs of a layer

// The shape of the weight; dimension 0 of both shapes is the outputs.
struct LinearWeight {
  Shape full_shape, file_shape;
  int64_t fan_in = 1, fan_out = 1;
  Slice part;                                               // this rank's outputs
  std::optional<Slice> inputs = {};                         // this rank's input features, in memory order; none: all
  Initializer init = {.type = Initializer::Type::kXavier};  // the default of the key
  bool may_have_bias = true;                                // false: the key is not read, and there is no bias
};

// Reads the keys init, lr, decay (for the weight) and bias: true, false, or a table with the same three keys
// and default init constant 0. Returns `name.weight` and, with a bias, `name.bias`. If ranks hold different inputs of
// the same outputs, the first one has the whole bias and the others have none, so that it is added once. Throws Error
// for a weight of more than 2^40 elements.
std::vector<Param> read_linear_params(const LayerSpec& spec, const LinearWeight& weight);

}  // namespace owt

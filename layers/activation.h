// An activation function, applied to each element. relu is a separate layer, because convolutions and dense layers fuse
// it into their own ops.
//   kind      y
//   sigmoid   1 / (1 + exp(-x))
//   tanh      tanh(x)
//   gelu      x * P(x), P: the normal distribution function (Hendrycks and Gimpel 2016, arXiv:1606.08415); with
//             approximate = "tanh": x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x^3)), from the same paper
//   silu      x * sigmoid(x), also called swish
//   leaky     x where x > 0, else slope * x (Maas et al. 2013)
//   prelu     like leaky, with trained slopes: layers/prelu.h
//   relu6     min(max(x, 0), 6)
//   softplus  log(1 + exp(x))
//   abs       |x|
//   square    x^2
//   hard_sigmoid  min(max(x + 3, 0), 6) / 6 (Howard et al. 2019, arXiv:1905.02244)
//   hard_swish    x * hard_sigmoid(x), from the same paper
// sigmoid, tanh, leaky, relu6, softplus and hard_sigmoid work in place: backward computes dx from y and dy.
// Keys: kind; for leaky: slope (0.01), at least 0, so that y has the sign of x; for gelu: approximate ("none" or
// "tanh"); for prelu: see layers/prelu.h.
#pragma once

#include "layers/base/layer.h"

namespace owt {

enum class ActivationKind {
  kSigmoid,
  kTanh,
  kGelu,
  kGeluTanh,
  kSilu,
  kLeaky,
  kRelu6,
  kSoftplus,
  kAbs,
  kSquare,
  kHardSigmoid,
  kHardSwish
};

struct ActivationSettings {
  ActivationKind kind;
  float slope = 0.01f;  // for kLeaky
};

std::unique_ptr<Layer> make_activation(const LayerSpec& spec);
std::unique_ptr<Op> bind_activation(Cpu, const ActivationSettings& settings);
std::unique_ptr<Op> bind_activation(Cuda, const ActivationSettings& settings);

}  // namespace owt

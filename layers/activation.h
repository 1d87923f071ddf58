// An activation: a function of every element by itself. relu is a layer of its own, because convolutions and dense
// layers compute theirs with it as one.
//   kind      y
//   sigmoid   1 / (1 + exp(-x))
//   tanh      tanh(x)
//   gelu      x * P(x), P being the normal distribution's (Hendrycks and Gimpel 2016, arXiv:1606.08415); with
//             approximate = "tanh" x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x^3)), as there
//   silu      x * sigmoid(x); also called swish
//   leaky     x where x > 0, else slope * x (Maas et al. 2013)
//   prelu     the same with slopes that are learnt: layers/prelu.h
//   relu6     min(max(x, 0), 6)
//   softplus  log(1 + exp(x))
//   abs       |x|
//   square    x^2
// sigmoid, tanh, leaky, relu6 and softplus work in place: dx is computed from y and dy.
// Keys: kind; of leaky slope (0.01), 0 or more, so that y tells the sign of x; of gelu approximate ("none" or "tanh");
// those of prelu.
#pragma once

#include "layers/layer.h"

namespace owt {

enum class ActivationKind { kSigmoid, kTanh, kGelu, kGeluTanh, kSilu, kLeaky, kRelu6, kSoftplus, kAbs, kSquare };

struct ActivationSettings {
  ActivationKind kind;
  float slope = 0.01f;  // of leaky
};

std::unique_ptr<Layer> make_activation(const LayerSpec& spec);
std::unique_ptr<Op> bind_activation(Cpu, const ActivationSettings& settings);
std::unique_ptr<Op> bind_activation(Cuda, const ActivationSettings& settings);

}  // namespace owt

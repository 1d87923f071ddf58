// Local response normalisation, across channels (Krizhevsky et al. 2012, section 3.3) or within each channel.
//   s_i = k + alpha / n * sum of x_j^2 over the window of i
//   y_i = x_i * s_i^-beta
//   dx_i = dy_i * s_i^-beta - 2 * alpha * beta / n * x_i * sum of dy_j * x_j * s_j^(-beta - 1) over all j whose window
//   holds i
// The window of channel c, clipped at the borders:
//   within = false: channels c - size / 2 to c + (size - 1) / 2 of the same position; n = size
//   within = true:  rows and columns around the position in the same ranges, of the same channel; n = size^2, also at
//                   borders
// alpha is divided by n, as in cuda-convnet (cmrnorm and rnorm), Caffe (ACROSS_CHANNELS and WITHIN_CHANNEL) and PyTorch
// (across channels only); the formula of the paper does not divide. Keys: size (5), alpha (1e-4), beta (0.75), k (1),
// within (false). A beta of 0.5, 0.75 or 1 needs no pow and is several times faster.
#pragma once

#include "layers/base/layer.h"

namespace owt {

struct LrnSettings {
  int64_t size = 5;
  float alpha = 1e-4f;
  float beta = 0.75f;
  float k = 1;  // > 0
  bool within = false;

  float per_square() const { return alpha / static_cast<float>(within ? size * size : size); }
};

// Whether a GPU has kernels for these settings in which a thread holds the window of a pack of channels; never if
// `within`. Other kernels are slower and store the terms of the window sums in scratch memory.
bool lrn_has_narrow_kernels(const LrnSettings& settings, int64_t channels, DType dtype);
const LrnSettings& lrn_settings(const Layer& layer);  // requires a layer of type lrn

std::unique_ptr<Layer> make_lrn(const LayerSpec& spec);
std::unique_ptr<Op> bind_lrn(Cpu, const LrnSettings& settings, const Shape& in);
std::unique_ptr<Op> bind_lrn(Cuda, const LrnSettings& settings, const Shape& in);
// Requires settings.within.
std::unique_ptr<Op> bind_lrn_within(Cpu, const LrnSettings& settings, const Shape& in);

}  // namespace owt

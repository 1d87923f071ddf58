// Local response normalisation across channels (Krizhevsky et al. 2012, section 3.3).
//   s_c = k + alpha / size * sum of x_j^2 over j in [c - size / 2, c + (size - 1) / 2] inside the channels
//   y_c = x_c * s_c^-beta
//   dx_c = dy_c * s_c^-beta - 2 * alpha * beta / size * x_c * sum of dy_j * x_j * s_j^(-beta - 1) over all j
//   whose window holds c
// alpha is divided by the size, as in cuda-convnet, Caffe and PyTorch; the paper's own formula does not divide. Keys:
// size (5), alpha (1e-4), beta (0.75), k (1). beta 0.5, 0.75 and 1 need no pow and are several times faster.
#pragma once

#include "layers/layer.h"

namespace owt {

struct LrnSettings {
  int64_t size = 5;
  float alpha = 1e-4f;
  float beta = 0.75f;
  float k = 1;  // > 0
};

// Whether a GPU has kernels in which a thread keeps the window of a pack of channels. Others are slower, and need the
// terms of the sums over windows in scratch memory.
bool lrn_has_narrow_kernels(int64_t size, int64_t channels, DType dtype);

std::unique_ptr<Layer> make_lrn(const LayerSpec& spec);
std::unique_ptr<Op> bind_lrn(Cpu, const LrnSettings& settings, const Shape& in);
std::unique_ptr<Op> bind_lrn(Cuda, const LrnSettings& settings, const Shape& in);

}  // namespace owt

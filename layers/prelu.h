// The kind prelu of the layer activation (layers/activation.h): a rectified linear unit with a trained slope.
//   y = x where x > 0, else weight * x;  dweight = sum of dy * x where x <= 0
// Parameter: `name.weight`, initially 0.25, no weight decay by default. Its shape is [channels]: one slope for each
// column of N x F, or for each channel of N x H x W x C. With shared = true it is [1]; the layer then cannot be split
// over ranks.
// Keys: shared (false), weight (table: lr, decay (0), init).
// Source: He et al. 2015 (arXiv:1502.01852), section 2.1; their `a` is the weight of PyTorch's PReLU.
#pragma once

#include "layers/base/layer.h"

namespace owt {

std::unique_ptr<Layer> make_prelu(const LayerSpec& spec);  // `kind` has been read
// The op for batches of this shape; the weight must outlive it.
std::unique_ptr<Op> bind_prelu(Cpu, Param& weight, const Shape& in);
std::unique_ptr<Op> bind_prelu(Cuda, Param& weight, const Shape& in);

}  // namespace owt

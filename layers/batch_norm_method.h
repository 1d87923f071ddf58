// Batch normalisation on the GPU by a chosen method.
#pragma once

#include "layers/batch_norm.h"

namespace owt {

enum class NormMethod {
  kFastest,           // by measurement, for each direction
  kOwnKernels,        // works for any shape
  kOwnKernelsByTwos,  // the same, with both passes over two groups of rows before the next two
  kCudnn,             // cuDNN for each direction that it has a plan for; else own kernels
};

std::unique_ptr<Op> bind_batch_norm_by(NormMethod method, Cuda cuda, BatchNormParams params,
                                       const BatchNormSettings& settings, const Shape& in);

}  // namespace owt

// Batch normalisation on the GPU by a given method.
#pragma once

#include "layers/batch_norm.h"

namespace owt {

enum class NormMethod {
  kFastest,     // measured, for each direction
  kOwnKernels,  // any shape
  kCudnn,       // where cuDNN has a plan, in the directions in which it has one; else own kernels
};

std::unique_ptr<Op> bind_batch_norm_by(NormMethod method, Cuda cuda, BatchNormParams params, double eps, int64_t rows,
                                       const Shape& in);

}  // namespace owt

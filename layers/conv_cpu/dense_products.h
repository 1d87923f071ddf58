// The matrix product that gives the weight gradient of a dense layer on the CPU.
#pragma once

#include "layers/base/param.h"

namespace owt {

struct DenseExtents {
  int64_t rows, features, out;
};

// Computes the gradient dy' * x of the weight [out, features] in pieces; each element occurs once. The threads of the
// team call `take` at the same time, each in memory order. T: float or Bf16. Sums are f32. The order of their summands
// depends neither on the threads nor on `take`.
template <class T>
void dense_weight_gradient(const DenseExtents& extents, const T* x, const T* dy, const TakeGradient& take);

}  // namespace owt

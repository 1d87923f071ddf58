// The product of a dense layer on the CPU that its weight learns from.
#pragma once

#include "layers/param.h"

namespace owt {

struct DenseExtents {
  int64_t rows, features, out;
};

// The gradient of the weight [out, features], dy' * x, in pieces: each element once. The threads of the team call
// `take` at the same time, each in the order of memory. T: float or Bf16. Sums are f32; the order of their summands
// depends neither on the threads nor on what is done with them.
template <class T>
void dense_weight_gradient(const DenseExtents& extents, const T* x, const T* dy, const TakeGradient& take);

}  // namespace owt

// An op that can add the output of another branch to its result.
#pragma once

#include "layers/base/layer.h"

namespace owt {

class SummingOp : public Op {
 public:
  // y = f(x) + b, or with relu its positive part. forward and then add_branches (layers/branch_sums.h)
  // would give the same bits. Backward gets the gradient of f(x), and no y.
  virtual void forward_sum(const Pass& pass, const Tensor& x, const Tensor& b, bool relu, Tensor& y) = 0;
};

}  // namespace owt

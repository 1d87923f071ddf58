// An op that sets up part of its state when backward first runs, or earlier on request.
#pragma once

#include "layers/base/layer.h"

namespace owt {

class PreparedOp : public Op {
 public:
  // Does the setup of the first backward, including algorithm selection by measurement. wants_dx: backward will compute
  // dx.
  virtual void prepare_backward(bool wants_dx) = 0;
};

}  // namespace owt

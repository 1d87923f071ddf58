// An op that makes part of what it needs when backward first runs, and can be asked to do so before.
#pragma once

#include "layers/layer.h"

namespace owt {

class PreparedOp : public Op {
 public:
  // Makes now what the first backward would make, algorithms chosen by measuring included. wants_dx: its dx will not be
  // null.
  virtual void prepare_backward(bool wants_dx) = 0;
};

}  // namespace owt

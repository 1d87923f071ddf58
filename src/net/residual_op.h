// The op of a residual block (residual.h), as far as a tape has to know it.
#pragma once

#include "layers/base/prepared_op.h"

namespace owt {

// If a block that ends in a relu is followed by another block, the second one masks its dx with the signs of its x
// while it adds the gradients of its branches. The first one then gets a masked dy. Both read and write less than if
// the first one masked it.
class ResidualOp : public PreparedOp {
 public:
  virtual bool ends_in_relu() const = 0;
  void mask_dx() { masks_dx_ = true; }
  void expect_masked_dy() { dy_is_masked_ = true; }

 protected:
  bool masks_dx() const { return masks_dx_; }
  bool dy_is_masked() const { return dy_is_masked_; }

 private:
  bool masks_dx_ = false, dy_is_masked_ = false;
};

}  // namespace owt

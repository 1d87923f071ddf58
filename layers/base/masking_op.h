// The backward pass of a relu between two ops of a net.
#pragma once

#include <optional>

#include "layers/base/param.h"

namespace owt {

// Backward of an op that ends in a relu begins with a pass over its dy: it masks dy, which means that it sets it to 0
// where the output is not positive, and sums it for the gradient of a bias before the relu. The next op of the net
// wrote this dy (its dx) and read this output (its x). If it does that work on the way, fewer passes over memory are
// needed. Ops implement this class besides Op.
class MaskingOp {
 public:
  virtual ~MaskingOp() = default;

  // The work that the next op may take over.
  struct Mask {
    Param* bias = nullptr;  // gets the sum of the masked dy over all positions; null: nothing is summed
  };
  // None if the op has no such work.
  virtual std::optional<Mask> mask() const = 0;
  // Offers the work of the op before. If it returns true, it does this work from then on whenever it computes dx. It is
  // called before anything is computed. It may measure, and may change scratch_bytes().
  virtual bool mask_dx(const Mask& before) = 0;
  // From now on dy is masked and summed.
  void expect_masked_dy() { dy_is_masked_ = true; }

 protected:
  bool dy_is_masked() const { return dy_is_masked_; }

 private:
  bool dy_is_masked_ = false;
};

}  // namespace owt

// bf16 layers on a CPU without bf16 product instructions: the f32 op runs between conversions. Factors are bf16 values
// and results are rounded once, as with the instructions; only the order of summation differs.
#pragma once

#include <functional>
#include <memory>

#include "layers/base/layer.h"

namespace owt {

// Whether layers with products must use widened ops.
bool must_widen(Cpu on);

// An op for bf16 activations that converts and calls the f32 op made by `bind`. `bind` gets a weight that holds the
// values of `weight` rounded to bf16. `weight` must outlive the op.
std::unique_ptr<Op> widened(Param& weight, const std::function<std::unique_ptr<Op>(Param& weight)>& bind);

}  // namespace owt

// bf16 on a processor without instructions for products of bf16: the f32 op between copies. The factors of products are
// bf16's, and what they make is rounded once, as where the instructions are; only the order of sums is another.
#pragma once

#include <functional>
#include <memory>

#include "layers/layer.h"

namespace owt {

// Whether the ops of layers with products are to be widened.
bool must_widen(Cpu on);

// An op on activations in bf16 that does what the f32 op does that `bind` makes for the weight it is given, whose
// values are those of `weight` rounded to bf16. `weight` must outlive it.
std::unique_ptr<Op> widened(Param& weight, const std::function<std::unique_ptr<Op>(Param& weight)>& bind);

}  // namespace owt

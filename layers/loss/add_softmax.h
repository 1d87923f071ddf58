// The softmax of one row, in f64.
#pragma once

#include <span>

namespace owt {

// Adds the softmax of the logits (at least one) to `sums`, and returns the logarithm of the sum of their exponentials:
// log p of class c is its logit minus this. Probabilities below 1e-307 of the largest one count as 0.
double add_softmax(std::span<const float> logits, std::span<double> sums);
double add_softmax(std::span<const double> logits, std::span<double> sums);

}  // namespace owt

// The softmax of one row, in f64; its classes may be in several places.
#pragma once

#include <cmath>
#include <span>

namespace owt {

// What the softmax of a row needs of all of its classes. The default is the sum over no classes.
struct SoftmaxSum {
  double largest = -HUGE_VAL, sum = 0;  // sum: of exp(x - largest)

  void add(const SoftmaxSum& of_others);                  // adds further classes of the row
  double log() const { return largest + std::log(sum); }  // log p of class c is its logit minus this
};
SoftmaxSum softmax_sum(std::span<const float> logits);
SoftmaxSum softmax_sum(std::span<const double> logits);

// Adds the probabilities of these classes of a row to `sums`. Probabilities below 1e-307 of the largest one count as 0.
void add_softmax(std::span<const float> logits, const SoftmaxSum& of_row, std::span<double> sums);
void add_softmax(std::span<const double> logits, const SoftmaxSum& of_row, std::span<double> sums);

}  // namespace owt

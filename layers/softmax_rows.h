// What the softmax losses of all devices have in common: the mathematics of one row, and of the sum over rows.
// The constexpr functions are for kernels too.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "layers/softmax_loss.h"
#include "src/core/on_devices.h"

namespace owt {

// What the probabilities of a row are compared with.
struct SmoothTarget {
  double smoothing = 0;  // e of softmax_loss.h
  int classes = 1;
  constexpr double own() const { return 1 - smoothing; }  // what the label has above any other class
  constexpr double every() const { return smoothing / classes; }
};
SmoothTarget target_of(const LossSettings& settings, Mode mode, int classes);

// Throws Error for settings out of range and where there are no classes.
void check_loss(const LossSettings& settings, int64_t classes);
// Throws Error naming row and value for a label outside [0, classes), and for a share outside
// [0, RowLabel::kShareUnits].
void check_labels(const int32_t* labels, int64_t rows, int64_t classes, const LossSettings& settings);
// Throws Error for labels of another shape.
void check_label_shape(const Tensor& labels, int64_t rows, const LossSettings& settings);

// What one row adds to the sums.
struct RowResult {
  double loss, top1, top5;
};

constexpr RowResult counted(double loss, int before) {
  const bool valid = loss == loss;  // not NaN
  return {loss, valid && before < 1 ? 1.0 : 0.0, valid && before < 5 ? 1.0 : 0.0};
}

// sum: of exp(x - largest) over the classes; own and mean: the label's logit (RowLabel::mean() of both) and the mean of
// all, less the largest; before: classes that rank before the first label. log_sum is log(sum).
// With finite logits no term is negative, so a small loss keeps its digits.
constexpr RowResult row_result(double log_sum, double own, double mean, int before, const SmoothTarget& target) {
  double loss = log_sum - target.own() * own;
  if (target.smoothing > 0) loss -= target.smoothing * mean;  // 0 times an infinite mean would be NaN
  return counted(loss, before);
}

// Whether a class with this logit ranks before the label. lower: its index is lower than the label's.
constexpr bool ranks_before(float logit, float own, bool lower) { return logit > own || (logit == own && lower); }

// dlogits of a row from exp(x - largest).
struct RowGradient {
  float weight, every, own;  // 1 / N, and 1 / N times the target

  constexpr RowGradient(int64_t step_rows, const SmoothTarget& target)
      : weight(1.0f / static_cast<float>(step_rows)),
        every(static_cast<float>(static_cast<double>(weight) * target.every())),
        own(static_cast<float>(static_cast<double>(weight) * target.own())) {}

  // What the exponentials are to be multiplied by.
  constexpr float scale(double sum) const { return static_cast<float>(static_cast<double>(weight) / sum); }
  constexpr float at(float exponential, float scale) const { return exponential * scale - every; }
  // Of a label with this share.
  constexpr float at_label(float exponential, float scale, float share) const {
    return at(exponential, scale) - own * share;
  }
};

// One class of a row whose classes are logistic units.
struct UnitResult {
  double loss;
  float gradient;
};

struct LogisticTarget {
  double own, every;  // of SmoothTarget
  double weight;      // 1 / N
  LogisticTarget(const SmoothTarget& target, int64_t step_rows)
      : own(target.own()), every(target.every()), weight(1.0 / static_cast<double>(step_rows)) {}

  // share: of the labels that are this class. The loss is log(1 + exp(x)) - q x without cancellation; an infinite x
  // that is right costs nothing. Kernels call the device's own exp and log1p of the same names.
  OWT_ON_DEVICES UnitResult compare(float logit, float share) const {
    const auto x = static_cast<double>(logit);
    const double q = own * static_cast<double>(share) + every, wrong = x > 0 ? 1 - q : -q;
    const double exponential = exp(x > 0 ? -x : x), p = (x > 0 ? 1 : exponential) / (1 + exponential);
    return {(wrong == 0 ? 0 : wrong * x) + log1p(exponential), static_cast<float>((p - q) * weight)};
  }
};

// Adds the rows, which are where the loss is computed, to the first kLossSums of `sums`, in an order that depends on
// nothing but their number; on the CPU it is their own.
void add_rows(Cpu, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream& stream);
void add_rows(Cuda, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream& stream);

}  // namespace owt

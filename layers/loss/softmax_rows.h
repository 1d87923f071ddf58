// Code shared by the softmax losses of all devices: the mathematics of one row, and the sum over rows. Kernels use the
// constexpr functions too.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "layers/loss/softmax_loss.h"
#include "src/core/on_devices.h"

namespace owt {

// The target distribution of a row.
struct SmoothTarget {
  double smoothing = 0;  // e of softmax_loss.h
  int classes = 1;
  constexpr double own() const { return 1 - smoothing; }  // share of the label in addition to every()
  constexpr double every() const { return smoothing / classes; }
};
SmoothTarget target_of(const LossSettings& settings, Mode mode, int classes);

// The share of the targets in the loss: w and T of softmax_loss.h.
struct TargetShare {
  double weight = 0, temperature = 1;
  bool from_teacher = false;  // their entropy is subtracted from the loss
  constexpr double of_label() const { return 1 - weight; }
  constexpr double of_loss() const { return weight * temperature * temperature; }
  constexpr double of_gradient() const { return weight * temperature; }
};
TargetShare share_of_targets(const LossSettings& settings, Mode mode);

// The logit of a row's label, and its derivative divided by the one of another class's logit.
struct LabelLogit {
  float logit, slope;
};

// How the loss makes logits from its inputs. By default they are its inputs, without any rounding.
struct RowMargin {
  float scale = 1;                           // for every class
  double factor = 1, angle = 0, cosine = 0;  // LossMargin; in evaluation there is none
  double least_sine = 0;

  OWT_ON_DEVICES LabelLogit of_label(float input) const {
    if (factor == 1 && angle == 0) return {scale * (input - static_cast<float>(cosine)), 1};
    constexpr double kPi = 3.14159265358979323846;
    const double x = static_cast<double>(input), c = x > 1 ? 1 : x < -1 ? -1 : x;
    const double sine = sqrt((1 - c) * (1 + c)), moved = factor * acos(c) + angle;
    double value = cos(moved), slope = factor * sin(moved) / (sine > least_sine ? sine : least_sine);
    if (moved > kPi) {
      value = factor == 1 ? c - angle * sin(angle) : -2 - value;
      slope = factor == 1 ? 1 : -slope;
    }
    return {static_cast<float>(static_cast<double>(scale) * (value - cosine)), static_cast<float>(slope)};
  }
};
RowMargin margin_of(const LossSettings& settings, Mode mode, DType inputs);

// Throws Error for settings out of range, or if there are no classes.
void check_loss(const LossSettings& settings, int64_t classes);
// Throws Error with row and value for a label outside [0, classes) or a share outside [0, RowLabel::kShareUnits].
void check_labels(const int32_t* labels, int64_t rows, int64_t classes, const LossSettings& settings);
// Throws Error unless the labels have the expected shape.
void check_label_shape(const Tensor& labels, int64_t rows, const LossSettings& settings);

// Contribution of one row to the sums.
struct RowResult {
  double loss, top1, top5;
};

constexpr RowResult counted(double loss, int before) {
  const bool valid = loss == loss;  // not NaN
  return {loss, valid && before < 1 ? 1.0 : 0.0, valid && before < 5 ? 1.0 : 0.0};
}

// The loss of a row. log_sum: log of the sum of exp(x - largest) over the classes. own, mean: the label's logit
// (RowLabel::mean() of both labels) and the mean logit, both minus the largest. before: number of classes that rank
// before the first label. For finite logits no term is negative, so a small loss keeps its digits.
constexpr RowResult row_result(double log_sum, double own, double mean, int before, const SmoothTarget& target) {
  double loss = log_sum - target.own() * own;
  if (target.smoothing > 0) loss -= target.smoothing * mean;  // 0 times an infinite mean would be NaN
  return counted(loss, before);
}

// Whether a class with this logit ranks before the label. lower: its index is below the label's.
constexpr bool ranks_before(float logit, float own, bool lower) { return logit > own || (logit == own && lower); }

// Computes dlogits of a row from exp(x - largest).
struct RowGradient {
  float weight, every, own;  // scale / N; the other two: scale / N times the target

  // scale: RowMargin::scale
  constexpr RowGradient(int64_t step_rows, const SmoothTarget& target, float scale)
      : weight(scale / static_cast<float>(step_rows)),
        every(static_cast<float>(static_cast<double>(weight) * target.every())),
        own(static_cast<float>(static_cast<double>(weight) * target.own())) {}

  // The factor for the exponentials; `sum`: their sum.
  constexpr float scale(double sum) const { return static_cast<float>(static_cast<double>(weight) / sum); }
  constexpr float at(float exponential, float scale) const { return exponential * scale - every; }
  // For a label with this share.
  constexpr float at_label(float exponential, float scale, float share) const {
    return at(exponential, scale) - own * share;
  }
};

// t log t
OWT_ON_DEVICES inline double times_log(float t) { return t == 0 ? 0 : static_cast<double>(t * logf(t)); }

// Loss and gradient of one class with LossType::kLogistic.
struct UnitResult {
  double loss;
  float gradient;
};

struct LogisticTarget {
  double own, every;  // see SmoothTarget
  double weight;      // 1 / N
  TargetShare shared;
  LogisticTarget(const SmoothTarget& target, int64_t step_rows, const TargetShare& of_targets = {})
      : own(target.own()), every(target.every()), weight(1.0 / static_cast<double>(step_rows)), shared(of_targets) {}

  // share: of the labels with this class. The loss is log(1 + exp(x)) - q x, computed without cancellation; an infinite
  // x on the correct side costs nothing. In kernels exp and log1p are the device functions.
  OWT_ON_DEVICES UnitResult compare(float logit, float share) const {
    return unit(static_cast<double>(logit), own * static_cast<double>(share) + every);
  }
  // For a unit that also has a target.
  OWT_ON_DEVICES UnitResult compare(float logit, float share, float target) const {
    const UnitResult label = compare(logit, share);
    const UnitResult other = unit(static_cast<double>(logit) / shared.temperature, static_cast<double>(target));
    const double of_label = shared.of_label();
    const double entropy = shared.from_teacher ? -times_log(target) - times_log(1 - target) : 0;
    return {(of_label == 0 ? 0 : of_label * label.loss) + shared.of_loss() * (other.loss - entropy),
            static_cast<float>(of_label * static_cast<double>(label.gradient) +
                               shared.of_gradient() * static_cast<double>(other.gradient))};
  }

 private:
  OWT_ON_DEVICES UnitResult unit(double x, double q) const {
    const double wrong = x > 0 ? 1 - q : -q;
    const double exponential = exp(x > 0 ? -x : x), p = (x > 0 ? 1 : exponential) / (1 + exponential);
    return {(wrong == 0 ? 0 : wrong * x) + log1p(exponential), static_cast<float>((p - q) * weight)};
  }
};

// The sums over a row that its targets need; `below`: a logit minus the largest one.
struct TargetSums {
  double exponentials = 0;  // exp(below / T)
  double targets = 0;       // t
  double times_below = 0;   // t below / T; for a teacher's targets less t log t

  // exponential: exp(below / T)
  OWT_ON_DEVICES void add(float exponential, float below, float target, const TargetShare& share) {
    exponentials += static_cast<double>(exponential);
    if (target == 0) return;  // 0 times an infinite logit would be NaN
    targets += static_cast<double>(target);
    times_below += static_cast<double>(target) * static_cast<double>(below) / share.temperature;
    if (share.from_teacher) times_below -= times_log(target);
  }
  // The loss and the gradient of one class without their factors in TargetShare.
  constexpr double loss(double log_exponentials) const { return targets * log_exponentials - times_below; }
  constexpr double gradient(float exponential, float target) const {
    return static_cast<double>(exponential) / exponentials * targets - static_cast<double>(target);
  }
};

// The loss of a row with targets, from the one of its label alone. log_exponentials: of TargetSums::exponentials.
constexpr RowResult with_targets(const RowResult& of_label, const TargetSums& sums, double log_exponentials,
                                 const TargetShare& share) {
  const double loss = share.of_label() == 0 ? 0 : share.of_label() * of_label.loss;
  return {loss + share.of_loss() * sums.loss(log_exponentials), of_label.top1, of_label.top5};
}

constexpr int kWatchedPerLaunch = 64;  // arrays of LossFollowUp::watched that a kernel checks

// Adds the rows, which are on the loss's device, to the first kLossSums of `sums`. The order of summation depends only
// on the number of rows; on the CPU it is the order of the rows.
void add_rows(Cpu, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream& stream);
void add_rows(Cuda, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream& stream);

}  // namespace owt

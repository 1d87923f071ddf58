// Learning-rate schedules: the factor of the base rate at each step.
//
// With p = step / (epochs * steps_per_epoch), limited to [0, 1], and e = step / steps_per_epoch (a fraction):
//   constant                       1
//   step       every, factor       factor^floor(e / every)
//   multistep  milestones, factor  factor^(number of milestones <= e)
//   poly       power, end = 0      end + (1 - end) * (1 - p)^power
//   cosine     end = 0             end + (1 - end) * (1 + cos(pi p)) / 2
//   exp        target_factor       (1 / target_factor)^p
//   dexp       target_factor, steps   target_factor^(-i / (steps - 1)) while p <= (i + 1) / steps
//   steps      until, factors      factors[i] with the first i where e < until[i]; after that, the last factor
//   linear     start = 1, peak = 0, end = 0   linear from start to 1 for p <= peak, then linear to end
//   plateau    factor, patience    factor^(number of times that more than `patience` successive evaluations were not
//                                  better than the best one before them)
// Biases may have a curve of their own, without a plateau, with the same epochs and the same warm-up.
//
// With warmup_epochs > 0 the factor grows linearly, step by step, from warmup_factor at step 0 to the schedule's value
// at the end of the warm-up.
// Sources: exp, dexp: Krizhevsky, cuda-convnet2; poly: Caffe; cosine: Loshchilov and Hutter 2017, without restarts;
// steps: Akiba, Suzuki and Fukuda 2017 (slow start); linear: Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single
// GPU"; plateau: PyTorch's ReduceLROnPlateau with a threshold of 0; warm-up: Goyal et al. 2017.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/files/run_state.h"
#include "src/system/config.h"

namespace owt {

// The curve of the factor.
struct RateCurve {
  enum class Type { kConstant, kStep, kMultistep, kPoly, kCosine, kExp, kDexp, kSteps, kLinear, kPlateau };
  enum class Metric { kTop1, kLoss };

  Type type = Type::kConstant;
  double every = 0;                // epochs, > 0
  double factor = 0;               // > 0; below 1 for a plateau
  std::vector<double> milestones;  // epochs, increasing
  double power = 1;                // > 0
  double end = 0;                  // factor at the end, [0, 1]
  double target_factor = 1;        // > 0; start rate / end rate
  int64_t steps = 2;               // levels of dexp, >= 2
  std::vector<double> until;       // epochs, increasing
  std::vector<double> factors;     // > 0, one more than in until
  double start = 1;                // factor at the start, [0, 1]
  double peak = 0;                 // fraction of the run, [0, 1)
  int64_t patience = 0;            // evaluations, >= 0
  Metric metric = Metric::kTop1;   // quantity of an evaluation that is compared
};

struct ScheduleSettings : RateCurve {
  // The length of the run. At least one of the two must be given; the run ends at the smaller one. If `epochs` is
  // given, progress p is relative to it, so a smaller max_steps stops a run early without changing its schedule.
  double epochs = 0;                // > 0; 0: not given
  int64_t max_steps = 0;            // > 0; 0: not given
  double warmup_epochs = 0;         // [0, epochs]
  double warmup_factor = 0;         // [0, 1]
  std::optional<RateCurve> biases;  // unset: the same curve as for weights

  // Reads [schedule]. Throws Error for keys that the type does not have, and for values out of range.
  static ScheduleSettings from(Config& config);
};

class Schedule {
 public:
  explicit Schedule(ScheduleSettings settings) : settings_(std::move(settings)) {}

  // The factor of the base rate for the update that ends step `step` (from 0); bias_rate(): the factor for biases.
  // more_steps: updates that are not in `step`, if the run has taken steps of another size before. max_steps counts
  // them, epochs do not.
  double rate(int64_t step, int64_t steps_per_epoch, const Plateau& seen = {}, int64_t more_steps = 0) const {
    return rate(settings_, step, steps_per_epoch, seen, more_steps);
  }
  double bias_rate(int64_t step, int64_t steps_per_epoch, const Plateau& seen = {}, int64_t more_steps = 0) const {
    return rate(settings_.biases.value_or(settings_), step, steps_per_epoch, seen, more_steps);
  }
  // Whether all rates are 0, because the warm-up lasts as long as a run that ends with the rate 0.
  bool never_rises(int64_t steps_per_epoch, int64_t more_steps = 0) const;
  // Progress p, 0 to 1: the part of the run's steps that come before step `step`.
  double progress(double step, int64_t steps_per_epoch, int64_t more_steps = 0) const;
  // Gives an evaluation to a plateau schedule; returns true if the rate decreases. Other schedules ignore it.
  bool note_evaluation(double loss, double top1, Plateau& seen) const;
  // The number of updates in the whole run.
  int64_t total_steps(int64_t steps_per_epoch, int64_t more_steps = 0) const;
  const ScheduleSettings& settings() const { return settings_; }

 private:
  // The run's steps before step `step`, and all its steps.
  std::pair<double, double> steps(double step, int64_t steps_per_epoch, int64_t more_steps) const;
  double rate(const RateCurve& curve, int64_t step, int64_t steps_per_epoch, const Plateau& seen,
              int64_t more_steps) const;
  double own_rate(const RateCurve& curve, double step, int64_t steps_per_epoch, const Plateau& seen,
                  int64_t more_steps) const;  // without warm-up

  ScheduleSettings settings_;
};

}  // namespace owt

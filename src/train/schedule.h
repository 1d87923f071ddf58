// Learning-rate schedules: the factor on the base rate at each step.
//
// With p = step / (epochs * steps_per_epoch), cut to [0, 1], and e = step / steps_per_epoch (a fraction):
//   constant                       1
//   step       every, factor       factor^floor(e / every)
//   multistep  milestones, factor  factor^(milestones that are <= e)
//   poly       power, end = 0      end + (1 - end) * (1 - p)^power
//   cosine     end = 0             end + (1 - end) * (1 + cos(pi p)) / 2
//   exp        target_factor       (1 / target_factor)^p
//   dexp       target_factor, steps   target_factor^(-i / (steps - 1)) while p <= (i + 1) / steps
//   steps      until, factors      factors[i] with the first i where e < until[i], and then the last of them
//   linear     start = 1, peak = 0, end = 0   from start to 1 where p <= peak, in a line, and from there on to end
//   plateau    factor, patience    factor^(times that more than `patience` evaluations one after the other were not
//                                  better than the best before them)
// Biases may follow a curve of their own, without a plateau, for the same epochs and with the same warm-up.
// With warmup_epochs > 0 the factor goes linearly, step by step, from warmup_factor at step 0 to what the
// schedule says at the end of the warm-up. Sources: exp, dexp: Krizhevsky, cuda-convnet2; poly: Caffe;
// cosine: Loshchilov and Hutter 2017, without restarts; steps: Akiba, Suzuki and Fukuda 2017 (slow start); linear:
// Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU"; plateau: PyTorch's ReduceLROnPlateau with a threshold
// of 0; warm-up: Goyal et al. 2017.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/core/config.h"
#include "src/train/files/run_state.h"

namespace owt {

// How the factor goes.
struct RateCurve {
  enum class Type { kConstant, kStep, kMultistep, kPoly, kCosine, kExp, kDexp, kSteps, kLinear, kPlateau };
  enum class Metric { kTop1, kLoss };

  Type type = Type::kConstant;
  double every = 0;                // epochs, > 0
  double factor = 0;               // > 0; of a plateau below 1
  std::vector<double> milestones;  // epochs, increasing
  double power = 1;                // > 0
  double end = 0;                  // factor at the end, [0, 1]
  double target_factor = 1;        // > 0; how many times smaller the rate is at the end
  int64_t steps = 2;               // levels of dexp, >= 2
  std::vector<double> until;       // epochs, increasing
  std::vector<double> factors;     // > 0, one more than of until
  double start = 1;                // factor at the start, [0, 1]
  double peak = 0;                 // share of the run, [0, 1)
  int64_t patience = 0;            // evaluations, >= 0
  Metric metric = Metric::kTop1;   // of an evaluation
};

struct ScheduleSettings : RateCurve {
  // The length of the run. At least one of the two is given; the run ends where the first ends. Progress p
  // counts against `epochs` where given, so that a shorter max_steps stops a run early without bending its
  // schedule.
  double epochs = 0;                // > 0; 0 = not given
  int64_t max_steps = 0;            // > 0; 0 = not given
  double warmup_epochs = 0;         // [0, epochs]
  double warmup_factor = 0;         // [0, 1]
  std::optional<RateCurve> biases;  // none: as the weights

  // From [schedule]. Throws Error for keys that the type does not have and values out of range.
  static ScheduleSettings from(Config& config);
};

class Schedule {
 public:
  explicit Schedule(ScheduleSettings settings) : settings_(std::move(settings)) {}

  // The factor on the base rate for the update that ends step `step` (from 0), and that of biases.
  // more_steps: updates done besides those `step`, where a run took steps of another size before. max_steps counts
  // them, epochs do not.
  double rate(int64_t step, int64_t steps_per_epoch, const Plateau& seen = {}, int64_t more_steps = 0) const {
    return rate(settings_, step, steps_per_epoch, seen, more_steps);
  }
  double bias_rate(int64_t step, int64_t steps_per_epoch, const Plateau& seen = {}, int64_t more_steps = 0) const {
    return rate(settings_.biases.value_or(settings_), step, steps_per_epoch, seen, more_steps);
  }
  // What a plateau sees of an evaluation; true: the rate falls. Other schedules see nothing.
  bool note_evaluation(double loss, double top1, Plateau& seen) const;
  // Updates in the whole run.
  int64_t total_steps(int64_t steps_per_epoch, int64_t more_steps = 0) const;
  const ScheduleSettings& settings() const { return settings_; }

 private:
  double rate(const RateCurve& curve, int64_t step, int64_t steps_per_epoch, const Plateau& seen,
              int64_t more_steps) const;
  double own_rate(const RateCurve& curve, double step, int64_t steps_per_epoch, const Plateau& seen,
                  int64_t more_steps) const;  // no warm-up

  ScheduleSettings settings_;
};

}  // namespace owt

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
// With warmup_epochs > 0 the factor goes linearly, step by step, from warmup_factor at step 0 to what the
// schedule says at the end of the warm-up. Sources: exp, dexp: Krizhevsky, cuda-convnet2; poly: Caffe;
// cosine: Loshchilov and Hutter 2017, without restarts; warm-up: Goyal et al. 2017.
#pragma once

#include <cstdint>
#include <vector>

#include "src/core/config.h"

namespace owt {

struct ScheduleSettings {
  enum class Type { kConstant, kStep, kMultistep, kPoly, kCosine, kExp, kDexp };

  // The length of the run. At least one of the two is given; the run ends where the first ends. Progress p
  // counts against `epochs` where given, so that a shorter max_steps stops a run early without bending its
  // schedule.
  double epochs = 0;      // > 0; 0 = not given
  int64_t max_steps = 0;  // > 0; 0 = not given
  Type type = Type::kConstant;
  double warmup_epochs = 0;        // [0, epochs]
  double warmup_factor = 0;        // [0, 1]
  double every = 0;                // epochs, > 0
  double factor = 0;               // > 0
  std::vector<double> milestones;  // epochs, increasing
  double power = 1;                // > 0
  double end = 0;                  // factor at the end, [0, 1]
  double target_factor = 1;        // > 0; how many times smaller the rate is at the end
  int64_t steps = 2;               // levels of dexp, >= 2

  // From [schedule]. Throws Error for keys that the type does not have and values out of range.
  static ScheduleSettings from(Config& config);
};

class Schedule {
 public:
  explicit Schedule(ScheduleSettings settings) : settings_(std::move(settings)) {}

  // The factor on the base rate for the update that ends step `step` (from 0).
  double rate(int64_t step, int64_t steps_per_epoch) const;
  // Steps in the whole run.
  int64_t total_steps(int64_t steps_per_epoch) const;
  const ScheduleSettings& settings() const { return settings_; }

 private:
  double own_rate(double step, int64_t steps_per_epoch) const;  // without warm-up

  ScheduleSettings settings_;
};

}  // namespace owt

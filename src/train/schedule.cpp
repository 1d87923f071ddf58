#include "src/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "src/core/check.h"

namespace owt {
namespace {

using Type = ScheduleSettings::Type;

constexpr double kTiny = std::numeric_limits<double>::min();  // low end of a range that excludes 0

const std::vector<std::string> kTypes = {"constant", "step", "multistep", "poly", "cosine", "exp", "dexp"};

std::vector<double> read_milestones(Config& config) {
  std::vector<double> milestones = config.numbers("milestones");
  if (milestones.empty()) config.error("milestones", "'milestones' is empty, wanted epochs like [8, 9]");
  double last = 0;
  for (const double m : milestones) {
    if (!(m > last))
      config.error("milestones", concat("'milestones' has ", m, " after ", last, ", wanted increasing epochs > 0"));
    last = m;
  }
  return milestones;
}

void read_length(Config& config, ScheduleSettings& s) {
  s.max_steps = config.integer("max_steps", 0, {.low = 0});
  // Without max_steps the missing key is reported as such.
  s.epochs = s.max_steps > 0 ? config.number("epochs", 0.0, {.low = 0}) : config.number("epochs", {.low = kTiny});
  s.warmup_epochs = config.number("warmup_epochs", 0.0, {.low = 0});
  s.warmup_factor = config.number("warmup_factor", 0.0, {.low = 0, .high = 1});
  if (s.epochs > 0 && s.warmup_epochs > s.epochs)
    config.error("warmup_epochs",
                 concat("'warmup_epochs' is ", s.warmup_epochs, ", wanted at most 'epochs', ", s.epochs));
}

void read_type_keys(Config& config, ScheduleSettings& s) {
  switch (s.type) {
    case Type::kConstant:
      break;
    case Type::kStep:
      s.every = config.number("every", {.low = kTiny});
      s.factor = config.number("factor", {.low = kTiny});
      break;
    case Type::kMultistep:
      s.milestones = read_milestones(config);
      s.factor = config.number("factor", {.low = kTiny});
      break;
    case Type::kPoly:
      s.power = config.number("power", {.low = kTiny});
      s.end = config.number("end", 0.0, {.low = 0, .high = 1});
      break;
    case Type::kCosine:
      s.end = config.number("end", 0.0, {.low = 0, .high = 1});
      break;
    case Type::kDexp:
      s.steps = config.integer("steps", {.low = 2});
      [[fallthrough]];
    case Type::kExp:
      s.target_factor = config.number("target_factor", {.low = kTiny});
      break;
  }
}

}  // namespace

ScheduleSettings ScheduleSettings::from(Config& config) {
  ScheduleSettings s;
  read_length(config, s);
  const std::string type = config.word("type", "constant", kTypes);
  s.type = static_cast<Type>(std::find(kTypes.begin(), kTypes.end(), type) - kTypes.begin());
  read_type_keys(config, s);
  config.finish("schedule type '" + type + "'");
  return s;
}

int64_t Schedule::total_steps(int64_t steps_per_epoch) const {
  const auto by_epochs = static_cast<int64_t>(std::ceil(settings_.epochs * static_cast<double>(steps_per_epoch)));
  if (settings_.max_steps == 0) return by_epochs;
  return settings_.epochs > 0 ? std::min(by_epochs, settings_.max_steps) : settings_.max_steps;
}

double Schedule::own_rate(double step, int64_t steps_per_epoch) const {
  const ScheduleSettings& s = settings_;
  const auto per_epoch = static_cast<double>(steps_per_epoch);
  const double epoch = step / per_epoch;
  const double length = s.epochs > 0 ? s.epochs * per_epoch : static_cast<double>(s.max_steps);
  const double p = std::clamp(step / length, 0.0, 1.0);
  switch (s.type) {
    case Type::kConstant:
      return 1;
    case Type::kStep:
      return std::pow(s.factor, std::floor(epoch / s.every));
    case Type::kMultistep: {
      const auto passed = std::upper_bound(s.milestones.begin(), s.milestones.end(), epoch);
      return std::pow(s.factor, static_cast<double>(passed - s.milestones.begin()));
    }
    case Type::kPoly:
      return s.end + (1 - s.end) * std::pow(1 - p, s.power);
    case Type::kCosine:
      return s.end + (1 - s.end) * (1 + std::cos(std::numbers::pi * p)) / 2;
    case Type::kExp:
      return std::pow(s.target_factor, -p);
    case Type::kDexp: {
      const auto levels = static_cast<double>(s.steps);
      // One division, so that a border that falls on a whole step is met exactly.
      const double level = std::clamp(std::ceil(step * levels / length) - 1, 0.0, levels - 1);
      return std::pow(s.target_factor, -level / (levels - 1));
    }
  }
  return 1;
}

double Schedule::rate(int64_t step, int64_t steps_per_epoch) const {
  OWT_CHECK(steps_per_epoch > 0, "steps_per_epoch is ", steps_per_epoch);
  const auto at = static_cast<double>(step);
  const double warmup_steps = settings_.warmup_epochs * static_cast<double>(steps_per_epoch);
  if (at >= warmup_steps) return own_rate(at, steps_per_epoch);
  const double from = settings_.warmup_factor, to = own_rate(warmup_steps, steps_per_epoch);
  return from + (to - from) * at / warmup_steps;
}

}  // namespace owt

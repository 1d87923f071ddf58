#include "src/recipe/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "src/system/check.h"

namespace owt {
namespace {

using Curve = RateCurve::Type;

constexpr double kTiny = std::numeric_limits<double>::min();  // low end of a range that excludes 0

// plateau is last, since biases cannot have it.
const std::vector<std::string> kCurves = {"constant", "step", "multistep", "poly",   "cosine",
                                          "exp",      "dexp", "steps",     "linear", "plateau"};

std::vector<double> read_epochs(Config& config, const std::string& key) {
  std::vector<double> epochs = config.numbers(key);
  if (epochs.empty()) config.error(key, concat("'", key, "' is empty, wanted epochs like [8, 9]"));
  double last = 0;
  for (const double epoch : epochs) {
    if (!(epoch > last))
      config.error(key, concat("'", key, "' has ", epoch, " after ", last, ", wanted increasing epochs > 0"));
    last = epoch;
  }
  return epochs;
}

std::vector<double> read_factors(Config& config, size_t borders) {
  std::vector<double> factors = config.numbers("factors");
  if (factors.size() != borders + 1)
    config.error("factors", concat("'factors' has ", factors.size(), " numbers, wanted ", borders + 1,
                                   ": one up to each epoch of 'until', and one from there on"));
  for (const double factor : factors)
    if (!(factor > 0) || !std::isfinite(factor))
      config.error("factors", concat("'factors' has ", factor, ", wanted numbers above 0"));
  return factors;
}

double read_below_1(Config& config, const std::string& key, double value, const char* why) {
  if (value == 1) config.error(key, concat("'", key, "' is 1, wanted less: ", why));
  return value;
}

void read_length(Config& config, ScheduleSettings& s) {
  s.max_steps = config.integer("max_steps", 0, {.low = 0});
  // Without max_steps a missing 'epochs' is reported as missing.
  s.epochs = s.max_steps > 0 ? config.number("epochs", 0.0, {.low = kTiny}) : config.number("epochs", {.low = kTiny});
  s.warmup_epochs = config.number("warmup_epochs", 0.0, {.low = 0});
  s.warmup_factor = config.number("warmup_factor", 0.0, {.low = 0, .high = 1});
  if (s.warmup_factor > 0 && !config.given("warmup_epochs"))
    config.error("warmup_factor", "'warmup_factor' begins a warm-up; set 'warmup_epochs', e.g. to 5");
  if (s.epochs > 0 && s.warmup_epochs > s.epochs)
    config.error("warmup_epochs",
                 concat("'warmup_epochs' is ", s.warmup_epochs, ", wanted at most 'epochs', ", s.epochs));
}

void read_curve_keys(Config& config, RateCurve& s) {
  switch (s.type) {
    case Curve::kConstant:
      break;
    case Curve::kStep:
      s.every = config.number("every", {.low = kTiny});
      s.factor = config.number("factor", {.low = kTiny});
      break;
    case Curve::kMultistep:
      s.milestones = read_epochs(config, "milestones");
      s.factor = config.number("factor", {.low = kTiny});
      break;
    case Curve::kPoly:
      s.power = config.number("power", {.low = kTiny});
      s.end = config.number("end", 0.0, {.low = 0, .high = 1});
      break;
    case Curve::kCosine:
      s.end = config.number("end", 0.0, {.low = 0, .high = 1});
      break;
    case Curve::kDexp:
      s.steps = config.integer("steps", {.low = 2});
      [[fallthrough]];
    case Curve::kExp:
      s.target_factor = config.number("target_factor", {.low = kTiny});
      break;
    case Curve::kSteps:
      s.until = read_epochs(config, "until");
      s.factors = read_factors(config, s.until.size());
      break;
    case Curve::kLinear:
      s.start = config.number("start", 1.0, {.low = 0, .high = 1});
      s.peak = read_below_1(config, "peak", config.number("peak", 0.0, {.low = 0, .high = 1}),
                            "after the peak the rate must fall to 'end'");
      s.end = config.number("end", 0.0, {.low = 0, .high = 1});
      break;
    case Curve::kPlateau:
      s.factor = read_below_1(config, "factor", config.number("factor", {.low = kTiny, .high = 1}),
                              "the rate would never fall");
      s.patience = config.integer("patience", {.low = 0});
      s.metric = config.word("metric", "top1", {"top1", "loss"}) == "top1" ? RateCurve::Metric::kTop1
                                                                           : RateCurve::Metric::kLoss;
      break;
  }
}

// types: the types that are allowed.
RateCurve read_curve(Config& config, const std::vector<std::string>& types) {
  RateCurve curve;
  const std::string type = config.word("type", "constant", types);
  curve.type = static_cast<Curve>(std::find(types.begin(), types.end(), type) - types.begin());
  read_curve_keys(config, curve);
  return curve;
}

std::optional<RateCurve> read_biases(Config& schedule) {
  if (!schedule.given("biases")) return {};
  Config config = schedule.table("biases");
  const RateCurve curve = read_curve(config, {kCurves.begin(), kCurves.end() - 1});
  config.finish("schedule type '" + kCurves[static_cast<size_t>(curve.type)] + "' of biases");
  return curve;
}

}  // namespace

ScheduleSettings ScheduleSettings::from(Config& config) {
  ScheduleSettings s;
  read_length(config, s);
  static_cast<RateCurve&>(s) = read_curve(config, kCurves);
  s.biases = read_biases(config);
  config.finish("schedule type '" + kCurves[static_cast<size_t>(s.type)] + "'");
  const bool falls = s.type == Curve::kPoly || s.type == Curve::kCosine || s.type == Curve::kLinear;
  if (falls && s.end == 0 && s.epochs > 0 && s.warmup_epochs == s.epochs)
    config.error("warmup_epochs", concat("'warmup_epochs' is ", s.warmup_epochs, ", wanted less than 'epochs', ",
                                         s.epochs, ": the rate after the warm-up would be 0"));
  return s;
}

namespace {

// A product or quotient of fractions that is whole except for its rounding, such as 1.1 * 50.
double without_rounding(double value) {
  const double whole = std::round(value);
  return std::abs(value - whole) <= 1e-9 * std::max(1.0, whole) ? whole : value;
}

}  // namespace

int64_t Schedule::total_steps(int64_t steps_per_epoch, int64_t more_steps) const {
  const auto of_epochs =
      static_cast<int64_t>(std::ceil(without_rounding(settings_.epochs * static_cast<double>(steps_per_epoch))));
  const int64_t by_epochs = of_epochs + more_steps;
  if (settings_.max_steps == 0) return by_epochs;
  return settings_.epochs > 0 ? std::min(by_epochs, settings_.max_steps) : settings_.max_steps;
}

std::pair<double, double> Schedule::steps(double step, int64_t steps_per_epoch, int64_t more_steps) const {
  if (settings_.epochs > 0) return {step, settings_.epochs * static_cast<double>(steps_per_epoch)};
  return {step + static_cast<double>(more_steps), static_cast<double>(settings_.max_steps)};
}

double Schedule::progress(double step, int64_t steps_per_epoch, int64_t more_steps) const {
  const auto [done, all] = steps(step, steps_per_epoch, more_steps);
  return std::clamp(done / all, 0.0, 1.0);
}

double Schedule::own_rate(const RateCurve& s, double step, int64_t steps_per_epoch, const Plateau& seen,
                          int64_t more_steps) const {
  const double epoch = step / static_cast<double>(steps_per_epoch);
  const double p = progress(step, steps_per_epoch, more_steps);
  switch (s.type) {
    case Curve::kConstant:
      return 1;
    case Curve::kStep:
      return std::pow(s.factor, std::floor(without_rounding(epoch / s.every)));
    case Curve::kMultistep: {
      const auto passed = std::upper_bound(s.milestones.begin(), s.milestones.end(), epoch);
      return std::pow(s.factor, static_cast<double>(passed - s.milestones.begin()));
    }
    case Curve::kPoly:
      return s.end + (1 - s.end) * std::pow(1 - p, s.power);
    case Curve::kCosine:
      return s.end + (1 - s.end) * (1 + std::cos(std::numbers::pi * p)) / 2;
    case Curve::kExp:
      return std::pow(s.target_factor, -p);
    case Curve::kDexp: {
      const auto levels = static_cast<double>(s.steps);
      // A single division, so that a level that begins at a whole step begins exactly there.
      const auto [done, all] = steps(step, steps_per_epoch, more_steps);
      const double level = std::clamp(std::ceil(done * levels / all) - 1, 0.0, levels - 1);
      return std::pow(s.target_factor, -level / (levels - 1));
    }
    case Curve::kSteps: {
      const auto passed = std::upper_bound(s.until.begin(), s.until.end(), epoch) - s.until.begin();
      return s.factors[static_cast<size_t>(passed)];
    }
    case Curve::kLinear:
      return p < s.peak ? std::lerp(s.start, 1.0, p / s.peak) : std::lerp(1.0, s.end, (p - s.peak) / (1 - s.peak));
    case Curve::kPlateau:
      return std::pow(s.factor, static_cast<double>(seen.falls));
  }
  return 1;
}

double Schedule::rate(const RateCurve& curve, int64_t step, int64_t steps_per_epoch, const Plateau& seen,
                      int64_t more_steps) const {
  OWT_CHECK(steps_per_epoch > 0, "steps_per_epoch is ", steps_per_epoch);
  const auto at = static_cast<double>(step);
  const double warmup_steps = settings_.warmup_epochs * static_cast<double>(steps_per_epoch);
  if (at >= warmup_steps) return own_rate(curve, at, steps_per_epoch, seen, more_steps);
  const double from = settings_.warmup_factor, to = own_rate(curve, warmup_steps, steps_per_epoch, seen, more_steps);
  return from + (to - from) * at / warmup_steps;
}

bool Schedule::never_rises(int64_t steps_per_epoch, int64_t more_steps) const {
  const double warmup_steps = settings_.warmup_epochs * static_cast<double>(steps_per_epoch);
  return warmup_steps >= static_cast<double>(total_steps(steps_per_epoch, more_steps)) &&
         settings_.warmup_factor == 0 && own_rate(settings_, warmup_steps, steps_per_epoch, {}, more_steps) == 0;
}

bool Schedule::note_evaluation(double loss, double top1, Plateau& seen) const {
  if (settings_.type != Curve::kPlateau) return false;
  const double value = settings_.metric == RateCurve::Metric::kTop1 ? top1 : -loss;
  if (!seen.begun || value > seen.best) {
    seen = {true, value, 0, seen.falls};
    return false;
  }
  if (++seen.waited <= settings_.patience) return false;
  seen.waited = 0;
  ++seen.falls;
  return true;
}

}  // namespace owt

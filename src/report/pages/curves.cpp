#include <algorithm>
#include <cmath>

#include "src/report/pages/plots.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kMostCurves = 60;  // runs

using Column = std::vector<double> StepColumns::*;
using Measure = double EvaluationLine::*;

struct Curve {
  const char *title, *unit;
  Column of_steps;         // null: only evaluations have it
  Measure of_evaluations;  // null: only steps have it
  double factor;
  bool log_y;
};
constexpr Curve kCurves[] = {
    {"Loss", "loss", &StepColumns::loss, &EvaluationLine::loss, 1, false},
    {"Top-1 accuracy", "%", &StepColumns::top1, &EvaluationLine::top1, 100, false},
    {"Top-5 accuracy", "%", nullptr, &EvaluationLine::top5, 100, false},
    {"Speed", "images/s", &StepColumns::images_per_second, nullptr, 1, false},
    {"Learning rate", "rate", &StepColumns::rate, nullptr, 1, false},
    {"Waiting for data", "ms/step", &StepColumns::data_wait_ms, nullptr, 1, false},
    {"Norm of the gradient", "norm", &StepColumns::gradient_norm, nullptr, 1, true},
};

bool any_finite(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

Places places_of_steps(const StepColumns& steps) {
  return {{steps.step.begin(), steps.step.end()}, steps.epochs, steps.hours};
}

Places places_of_evaluations(const std::vector<EvaluationLine>& all) {
  Places places;
  for (const EvaluationLine& each : all) {
    places.steps.push_back(static_cast<double>(each.step));
    places.epochs.push_back(each.epochs), places.hours.push_back(each.hours);
  }
  return places;
}

std::vector<double> times(double factor, std::vector<double> values) {
  for (double& value : values) value *= factor;
  return values;
}

// The lines of runs[i] have color i, and the places 2 i of its steps and 2 i + 1 of its evaluations.
Plot plot_of(Runs runs, const Curve& curve) {
  Plot plot{curve.title, curve.unit, {}, curve.log_y};
  for (size_t i = 0; i < runs.size(); ++i) {
    const StepColumns& steps = runs[i].metrics.steps;
    const std::vector<EvaluationLine>& evaluations = runs[i].metrics.evaluations;
    PlotLine line{runs[i].name, "", static_cast<int>(i)};
    if (curve.of_steps && any_finite(steps.*curve.of_steps)) {
      line.kind = curve.of_evaluations ? kTrainingKind : "";
      line.light = curve.of_evaluations != nullptr;
      line.places = 2 * i;
      line.values = times(curve.factor, steps.*curve.of_steps);
      plot.lines.push_back(line);
    }
    if (!curve.of_evaluations || evaluations.empty()) continue;
    line.kind = evaluations.front().split + (evaluations.front().ema ? " (averages)" : "");
    line.light = false, line.dots = true, line.places = 2 * i + 1;
    line.values.clear();
    for (const EvaluationLine& each : evaluations) line.values.push_back(curve.factor * (each.*curve.of_evaluations));
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

// Top-5 of five classes or fewer is always 1.
bool tells_top5(Runs runs) {
  return std::any_of(runs.begin(), runs.end(), [](const RunRecord& run) {
    return std::any_of(run.metrics.evaluations.begin(), run.metrics.evaluations.end(),
                       [](const EvaluationLine& line) { return line.top5 < 1; });
  });
}

}  // namespace

std::string curves_section(Runs all) {
  const Runs runs = all.last(std::min(all.size(), kMostCurves));
  Plots plots{"curves"};
  for (const RunRecord& run : runs) {
    plots.places.push_back(places_of_steps(run.metrics.steps));
    plots.places.push_back(places_of_evaluations(run.metrics.evaluations));
  }
  for (const Curve& curve : kCurves)
    if (curve.of_evaluations != &EvaluationLine::top5 || tells_top5(runs)) plots.plots.push_back(plot_of(runs, curve));
  const std::string content = html_of(plots);
  if (content.empty())
    return section("curves", "Curves",
                   missing("No steps are in metrics.jsonl yet: owt train writes the first at once."));
  std::string note =
      "Thin lines are training, lines with dots are evaluations. Long lines show means of consecutive steps. Values "
      "far above all others are cut off at the edge.";
  const bool timed = std::any_of(runs.begin(), runs.end(), [](auto& r) { return any_finite(r.metrics.steps.hours); });
  if (!timed) note += " Curves over time need runs of this version of owt, whose metrics.jsonl has seconds.";
  if (runs.size() < all.size()) note += format(" The curves are of the last {} of {} runs.", runs.size(), all.size());
  return section("curves", "Curves", content + paragraph(note));
}

}  // namespace owt

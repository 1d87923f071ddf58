#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/report/pages/plots.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kMostCurves = 60;        // runs
constexpr size_t kMostWorldChanges = 40;  // per run, since a page with thousands of marks is slow

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

// The newest changes of the workers during the run.
std::vector<const WorldLine*> changes_of(const RunRecord& run) {
  std::vector<const WorldLine*> all;
  for (const WorldLine& line : run.metrics.worlds)
    if (!line.of_start) all.push_back(&line);
  if (all.size() > kMostWorldChanges) all.erase(all.begin(), all.end() - kMostWorldChanges);
  return all;
}

void add_place(Places& to, double step, double epochs, double hours) {
  to.steps.push_back(step), to.epochs.push_back(epochs), to.hours.push_back(hours);
}

// x twice, between the places where the pointer leaves the mark.
std::vector<double> around(double x, const std::vector<double>& curve) {
  const auto [first, last] = std::pair(std::min(curve.front(), x), std::max(curve.back(), x));
  const double reach = (last - first) / 40;
  return {std::max(x - reach, first), x, x, std::min(x + reach, last)};
}

// The height of the x axis below a curve, so that marks on the axis do not change the range of the chart.
double foot_of(const std::vector<double>& curve) {
  double low = INFINITY, high = 0;
  for (const double value : curve)
    if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  return low < high / 3 || !std::isfinite(low) ? 0 : low;
}

// A mark for each change of the workers, from the x axis to the curve of the loss.
void add_marks(Plots& to, Plot& plot, const RunRecord& run, int color) {
  const StepColumns& steps = run.metrics.steps;
  if (steps.step.empty()) return;
  const double foot = foot_of(steps.loss);
  for (const WorldLine* const change : changes_of(run)) {
    const auto found = std::lower_bound(steps.step.begin(), steps.step.end(), change->step);
    const auto at = std::min(static_cast<size_t>(found - steps.step.begin()), steps.step.size() - 1);
    const double loss = std::isfinite(steps.loss[at]) ? steps.loss[at] : foot;
    PlotLine mark{run.name, format("{} workers: {}", change->workers, change->text), color, true, true};
    mark.places = to.places.size(), mark.mark = true;
    mark.values = {NAN, loss, foot, NAN};
    plot.lines.push_back(std::move(mark));
    to.places.push_back({around(static_cast<double>(change->step), {steps.step.begin(), steps.step.end()}),
                         around(change->epochs, steps.epochs), around(change->hours, steps.hours), true});
  }
}

// The number of workers over a run, as steps.
void add_workers(Plots& to, Plot& plot, const RunRecord& run, int color) {
  const std::vector<WorldLine>& worlds = run.metrics.worlds;
  if (worlds.empty()) return;
  PlotLine line{run.name, "", color, false, true};
  line.places = to.places.size();
  Places& places = to.places.emplace_back();
  places.of_mark = true;
  for (const WorldLine& world : worlds) {
    const auto before = line.values.empty() ? std::nullopt : std::optional(line.values.back());
    for (const double workers : {before.value_or(NAN), static_cast<double>(world.workers)}) {
      if (std::isnan(workers)) continue;
      add_place(places, static_cast<double>(world.step), world.epochs, world.hours);
      line.values.push_back(workers);
    }
  }
  if (const StepColumns& steps = run.metrics.steps; !steps.step.empty() && steps.step.back() > worlds.back().step) {
    add_place(places, static_cast<double>(steps.step.back()), steps.epochs.back(), steps.hours.back());
    line.values.push_back(line.values.back());
  }
  plot.lines.push_back(std::move(line));
}

// What happened to the workers of each run.
std::string table_of_changes(Runs runs) {
  HtmlTable table{{"run", "step", "workers", "what happened", "steps repeated"}, {}};
  for (const RunRecord& run : runs)
    for (const WorldLine* const change : changes_of(run))
      table.rows.push_back({run.name, std::to_string(change->step), std::to_string(change->workers), change->text,
                            short_number(change->repeated)});
  return "<h3>Workers that left or joined</h3>\n" + html_of(table);
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
  const bool changed = std::ranges::any_of(runs, [](const RunRecord& run) { return !changes_of(run).empty(); });
  if (changed) {
    Plot workers{"Workers", "workers", {}};
    for (size_t i = 0; i < runs.size(); ++i) {
      add_marks(plots, plots.plots.front(), runs[i], static_cast<int>(i));
      add_workers(plots, workers, runs[i], static_cast<int>(i));
    }
    plots.plots.push_back(std::move(workers));
  }
  const std::string content = html_of(plots);
  if (content.empty())
    return section("curves", "Curves",
                   missing("No steps are in metrics.jsonl yet: owt train writes the first at once."));
  std::string note =
      "Thin lines are training, lines with dots are evaluations. Long lines show means of consecutive steps. Values "
      "far above all others are cut off at the edge.";
  const bool timed = std::any_of(runs.begin(), runs.end(), [](auto& r) { return any_finite(r.metrics.steps.hours); });
  if (!timed) note += " Curves over time need runs of this version of owt, whose metrics.jsonl has seconds.";
  if (changed)
    note +=
        format(" Marks on the axis of the loss are the last {} changes of a run's workers; point at one to read it.",
               kMostWorldChanges);
  if (runs.size() < all.size()) note += format(" The curves are of the last {} of {} runs.", runs.size(), all.size());
  return section("curves", "Curves", content + paragraph(note) + (changed ? table_of_changes(runs) : ""));
}

}  // namespace owt

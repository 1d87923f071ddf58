#include <algorithm>
#include <cmath>

#include "src/report/pages/chart.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

namespace owt {
namespace {

using Column = std::vector<double> StepColumns::*;
using Measure = double EvaluationLine::*;
using Place = double EvaluationLine::*;

struct Along {  // the quantity on the x axis
  const char *over, *unit;
  Column of_steps;
  Place of_evaluations;
  double factor;
};

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

Line line_of_steps(const RunRecord& run, const Curve& curve, const Along& along, int color) {
  const StepColumns& steps = run.metrics.steps;
  Line line{curve.of_evaluations ? run.name + ", training" : run.name, {}, color, curve.of_evaluations != nullptr};
  const std::vector<double>&values = steps.*curve.of_steps, &places = steps.*along.of_steps;
  if (!any_finite(values)) return line;
  for (size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(places[i])) line.points.push_back({along.factor * places[i], curve.factor * values[i]});
  return line;
}

Line line_of_evaluations(const RunRecord& run, const Curve& curve, const Along& along, int color) {
  const std::vector<EvaluationLine>& all = run.metrics.evaluations;
  Line line{
      run.name + (all.empty() ? "" : ", " + all.front().split + (all.front().ema ? " (averages)" : "")), {}, color};
  line.dots = true;
  for (const EvaluationLine& each : all)
    if (std::isfinite(each.*along.of_evaluations))
      line.points.push_back({along.factor * (each.*along.of_evaluations), curve.factor * (each.*curve.of_evaluations)});
  return line;
}

bool has_points(const LineChart& chart) {
  return std::any_of(chart.lines.begin(), chart.lines.end(), [](const Line& line) { return !line.points.empty(); });
}

LineChart chart_of(Runs runs, const Curve& curve, const Along& along) {
  LineChart chart{format("{} over {}", curve.title, along.over), along.unit, curve.unit, {}, curve.log_y};
  int color = 0;
  for (const RunRecord& run : runs) {
    if (curve.of_steps) chart.lines.push_back(line_of_steps(run, curve, along, color));
    if (curve.of_evaluations) chart.lines.push_back(line_of_evaluations(run, curve, along, color));
    ++color;
  }
  std::erase_if(chart.lines, [](const Line& line) { return line.points.empty(); });
  return chart;
}

double last_finite(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(), [](double value) { return std::isfinite(value); });
  return found == values.rend() ? NAN : *found;
}

// The x axes: epochs, and time in seconds, minutes or hours, depending on the longest run.
std::vector<Along> all_along(Runs runs) {
  double longest = 0;  // hours
  for (const RunRecord& run : runs)
    if (const double last = last_finite(run.metrics.steps.hours); std::isfinite(last))
      longest = std::max(longest, last);
  const auto [unit, factor] = longest < 0.1 ? std::pair("seconds", 3600.0)
                              : longest < 3 ? std::pair("minutes", 60.0)
                                            : std::pair("hours", 1.0);
  return {{"epochs", "epochs", &StepColumns::epochs, &EvaluationLine::epochs, 1},
          {"time", unit, &StepColumns::hours, &EvaluationLine::hours, factor}};
}

}  // namespace

std::string curves_section(Runs runs) {
  std::string content;
  for (const Curve& curve : kCurves)
    for (const Along& along : all_along(runs))
      if (const LineChart chart = chart_of(runs, curve, along); has_points(chart)) content += html_of(figure_of(chart));
  if (content.empty())
    return section("curves", "Curves",
                   missing("No steps are in metrics.jsonl yet: owt train writes the first at once."));
  std::string note =
      "A pale band spans all values of a column of pixels, the line in it is their mean. What rises far above all else "
      "ends at the edge.";
  const bool timed = std::any_of(runs.begin(), runs.end(), [](auto& r) { return any_finite(r.metrics.steps.hours); });
  if (!timed) note += " Curves over time need runs of this version of owt, whose metrics.jsonl has seconds.";
  return section("curves", "Curves", figures(content) + paragraph(note));
}

}  // namespace owt

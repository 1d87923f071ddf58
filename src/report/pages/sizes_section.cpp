#include <algorithm>
#include <cmath>

#include "src/core/profiler.h"
#include "src/report/pages/plots.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kMostSizeLines = 8;
// The usual range of |dw| / |w|, a rule of thumb of cuda-convnet and Caffe users.
constexpr double kUsualLow = 1e-4, kUsualHigh = 1e-2;

struct SizeMeasure {
  const char *title, *unit;
  double (*of)(const ParameterSize&);
};
constexpr SizeMeasure kSizeMeasures[] = {
    {"|dw| / |w|", "ratio", [](const ParameterSize& size) { return size.change / size.mean; }},
    {"Mean |w|", "|w|", [](const ParameterSize& size) { return size.mean; }},
    {"Mean |dw| of an update", "|dw|", [](const ParameterSize& size) { return size.change; }}};
constexpr const SizeMeasure& kRatio = kSizeMeasures[0];

// Weights of matrix products, at most kMostSizeLines of them, from the first layer to the last.
std::vector<std::string> drawn_parameters(const WeightLine& last) {
  std::vector<std::string> weights, drawn;
  for (const ParameterSize& size : last.parameters)
    if (size.name.ends_with(".weight")) weights.push_back(size.name);
  const size_t count = std::min(weights.size(), kMostSizeLines);
  for (size_t i = 0; i < count; ++i) drawn.push_back(weights[count == 1 ? 0 : i * (weights.size() - 1) / (count - 1)]);
  return drawn;
}

Plot size_plot(const RunRecord& run, const SizeMeasure& measure, const std::vector<std::string>& names) {
  Plot plot{measure.title, measure.unit, {}, true};
  if (&measure == &kRatio) plot.usual_low = kUsualLow, plot.usual_high = kUsualHigh;
  int color = 0;
  for (const std::string& name : names) {
    PlotLine line{.name = name, .color = color++, .dots = true};
    for (const WeightLine& each : run.metrics.weights) {
      const auto found = std::find_if(each.parameters.begin(), each.parameters.end(),
                                      [&](const ParameterSize& size) { return size.name == name; });
      line.values.push_back(found == each.parameters.end() ? NAN : measure.of(*found));
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

Plots size_plots(const RunRecord& run, const std::vector<std::string>& names) {
  Plots plots{"sizes-" + run.name, {Places()}};
  for (const WeightLine& each : run.metrics.weights) {
    plots.places.front().steps.push_back(static_cast<double>(each.step));
    plots.places.front().epochs.push_back(each.epochs), plots.places.front().hours.push_back(each.hours);
  }
  for (const SizeMeasure& measure : kSizeMeasures) plots.plots.push_back(size_plot(run, measure, names));
  return plots;
}

HtmlTable last_sizes(const WeightLine& last) {
  HtmlTable table{{"parameter", "ratio", "mean |w|", "mean |dw|"}, {}};
  for (const ParameterSize& size : last.parameters) {
    std::vector<std::string>& row = table.rows.emplace_back(1, size.name);
    for (const SizeMeasure& measure : kSizeMeasures) row.push_back(short_number(measure.of(size)));
  }
  return table;
}

using Ratio = std::pair<double, std::string>;  // ratio of a parameter, and its name

// Lists the first few, and the number of others.
std::string named(const std::vector<Ratio>& ratios) {
  constexpr size_t kNamed = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, ratios.size()); ++i)
    text += format("{}{} ({})", i == 0 ? "" : ", ", ratios[i].second, short_number(ratios[i].first));
  return text + (ratios.size() > kNamed ? format(" and {} others", ratios.size() - kNamed) : "");
}

// Weights whose median update ratio over the evaluations is outside the usual range.
std::string unusual_ratios(const RunRecord& run) {
  std::vector<Ratio> low, high;
  for (const ParameterSize& size : run.metrics.weights.back().parameters) {
    std::vector<double> ratios;
    for (const WeightLine& each : run.metrics.weights)
      for (const ParameterSize& then : each.parameters)
        if (then.name == size.name && std::isfinite(kRatio.of(then))) ratios.push_back(kRatio.of(then));
    const double ratio = median(ratios);
    if (!size.name.ends_with(".weight") || ratios.empty() || (ratio >= kUsualLow && ratio <= kUsualHigh)) continue;
    (ratio < kUsualLow ? low : high).emplace_back(ratio, size.name);
  }
  std::sort(low.begin(), low.end());
  std::sort(high.rbegin(), high.rend());
  std::string text;
  if (!low.empty())
    text += warning(format("{}: the ratio is below {} in the median of the evaluations; these layers hardly change: {}",
                           run.name, kUsualLow, named(low)));
  if (!high.empty())
    text += warning(format(
        "{}: the ratio is above {} in the median of the evaluations; a lower learning rate may be better for: {}",
        run.name, kUsualHigh, named(high)));
  return text;
}

std::string sizes_of(const RunRecord& run) {
  const WeightLine& last = run.metrics.weights.back();
  const std::vector<std::string> drawn = drawn_parameters(last);
  return unusual_ratios(run) + html_of(size_plots(run, drawn)) +
         format("<details><summary>All {} parameters of {} at step {}</summary>\n{}</details>\n",
                last.parameters.size(), escaped(run.name), last.step, html_of(last_sizes(last)));
}

}  // namespace

std::string sizes_section(Runs runs) {
  std::string content;
  for (const RunRecord& run : runs)
    if (!run.metrics.weights.empty()) content += of_run(run.name, runs.size(), sizes_of(run));
  if (content.empty())
    content = missing("No sizes of weights are recorded: owt train writes them into metrics.jsonl at each evaluation.");
  else
    content = paragraph(
                  "At each evaluation: |w| is the mean absolute value of a parameter, and |dw| that of its last "
                  "update. A ratio near 0.001 is common. The shaded range is 0.0001 to 0.01: below it a layer hardly "
                  "changes, above it the steps are too large.") +
              content;
  return section("sizes", "Weights and their updates", content);
}

}  // namespace owt

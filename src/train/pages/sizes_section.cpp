#include <algorithm>
#include <cmath>

#include "src/core/log.h"
#include "src/train/pages/chart.h"
#include "src/train/pages/sections.h"

namespace owt {
namespace {

constexpr size_t kMostSizeLines = 8;

struct SizeMeasure {
  const char *title, *unit;
  double (*of)(const ParameterSize&);
};
constexpr SizeMeasure kSizeMeasures[] = {
    {"Mean |w|", "|w|", [](const ParameterSize& size) { return size.mean; }},
    {"Mean |dw| of an update", "|dw|", [](const ParameterSize& size) { return size.change; }},
    {"|dw| / |w|", "ratio", [](const ParameterSize& size) { return size.change / size.mean; }}};

// Those of products, at most so many, from the first layer to the last.
std::vector<std::string> drawn_parameters(const WeightLine& last) {
  std::vector<std::string> weights, drawn;
  for (const ParameterSize& size : last.parameters)
    if (size.name.ends_with(".weight")) weights.push_back(size.name);
  const size_t count = std::min(weights.size(), kMostSizeLines);
  for (size_t i = 0; i < count; ++i) drawn.push_back(weights[count == 1 ? 0 : i * (weights.size() - 1) / (count - 1)]);
  return drawn;
}

LineChart size_chart(const RunRecord& run, const SizeMeasure& measure, const std::vector<std::string>& names) {
  LineChart chart{format("{} over epochs of {}", measure.title, run.name), "epochs", measure.unit, {}, true};
  int color = 0;
  for (const std::string& name : names) {
    Line line{name, {}, color++};
    line.dots = true;
    for (const WeightLine& each : run.metrics.weights)
      for (const ParameterSize& size : each.parameters)
        if (size.name == name && std::isfinite(measure.of(size)))
          line.points.push_back({each.epochs, measure.of(size)});
    if (!line.points.empty()) chart.lines.push_back(std::move(line));
  }
  return chart;
}

HtmlTable last_sizes(const WeightLine& last) {
  HtmlTable table{{"parameter", "mean |w|", "mean |dw|", "ratio"}, {}};
  for (const ParameterSize& size : last.parameters) {
    std::vector<std::string>& row = table.rows.emplace_back(1, size.name);
    for (const SizeMeasure& measure : kSizeMeasures) row.push_back(short_number(measure.of(size)));
  }
  return table;
}

std::string sizes_of(const RunRecord& run) {
  const WeightLine& last = run.metrics.weights.back();
  const std::vector<std::string> drawn = drawn_parameters(last);
  std::string charts;
  for (const SizeMeasure& measure : kSizeMeasures) charts += html_of(figure_of(size_chart(run, measure, drawn)));
  return figures(charts) + format("<details><summary>All {} parameters of {} at step {}</summary>\n{}</details>\n",
                                  last.parameters.size(), escaped(run.name), last.step, html_of(last_sizes(last)));
}

}  // namespace

std::string sizes_section(Runs runs) {
  std::string content;
  for (const RunRecord& run : runs)
    if (!run.metrics.weights.empty()) content += sizes_of(run);
  if (content.empty())
    content = missing("No sizes of weights are recorded: owt train writes them into metrics.jsonl at each evaluation.");
  else
    content = paragraph(
                  "At each evaluation: the mean size of a parameter's values, and of what the last update before it "
                  "changed. A ratio near 0.001 is common; one that is ten times larger or smaller asks for another "
                  "learning rate of that layer.") +
              content;
  return section("sizes", "Weights and their updates", content);
}

}  // namespace owt

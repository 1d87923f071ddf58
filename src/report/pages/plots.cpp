#include "src/report/pages/plots.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "src/report/pages/run_summary.h"
#include "src/system/log.h"
#include "src/system/printable.h"

namespace owt {
namespace {

constexpr size_t kMostPointsOfAll = 16000, kFewestPoints = 200;
constexpr size_t kFewNames = 8;  // more names get a filter

// An x axis of the charts.
struct PlotAxis {
  const char* id;  // in the script
  std::string unit;
  std::vector<double> Places::*of;
  double factor = 1;
};

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// Epochs, steps, and time in seconds, minutes or hours, depending on the longest line. The first one is for the fixed
// pictures, and chosen at first.
std::vector<PlotAxis> axes_of(const Plots& plots) {
  double longest = NAN;  // hours
  for (const Places& places : plots.places) longest = std::fmax(longest, last_finite(places.hours));
  std::vector<PlotAxis> axes{{"epochs", "epochs", &Places::epochs}, {"steps", "steps", &Places::steps}};
  if (!std::isfinite(longest)) return axes;
  if (longest < 0.1)
    axes.push_back({"time", "seconds", &Places::hours, 3600});
  else if (longest < 3)
    axes.push_back({"time", "minutes", &Places::hours, 60});
  else
    axes.push_back({"time", "hours", &Places::hours, 1});
  return axes;
}

LineChart chart_along(const Plots& plots, const Plot& plot, const PlotAxis& axis, const char* over) {
  LineChart chart{
      format("{} over {}", plot.title, over), axis.unit, plot.unit, {}, plot.log_y, plot.usual_low, plot.usual_high};
  for (const PlotLine& line : plot.lines) {
    Line drawn{line.name, {}, line.color, line.light, line.dots, line.kind, line.mark};
    const std::vector<double>& x = plots.places[line.places].*axis.of;
    for (size_t i = 0; i < x.size(); ++i)
      if (std::isfinite(x[i])) drawn.points.push_back({axis.factor * x[i], line.values[i]});
    if (!drawn.points.empty()) chart.lines.push_back(std::move(drawn));
  }
  return chart;
}

// Keeps names from ending the element that contains the JSON.
std::string json_text(const std::string& text) {
  std::string safe;
  for (const char c : nlohmann::json(printable(text)).dump()) safe += c == '<' ? "\\u003c" : std::string(1, c);
  return safe;
}

std::string number_text(double value, int digits) {
  return std::isfinite(value) ? format("{:.{}g}", value, digits) : "null";
}

// The last of every `together` values, or their mean.
enum class Thinned { kLast, kMean };
std::string array_of(const std::vector<double>& values, size_t together, Thinned how, int digits, double factor = 1) {
  std::string text = "[";
  for (size_t begin = 0; begin < values.size(); begin += together) {
    const size_t end = std::min(begin + together, values.size());
    double sum = 0, count = 0;
    for (size_t i = how == Thinned::kLast ? end - 1 : begin; i < end; ++i)
      if (std::isfinite(values[i])) sum += values[i], ++count;
    text += (begin == 0 ? "" : ",") + number_text(count > 0 ? factor * sum / count : NAN, digits);
  }
  return text + "]";
}

// See charts.js.
std::string json_of(const Plots& plots, const std::vector<PlotAxis>& axes) {
  const auto long_lines = static_cast<size_t>(std::ranges::count(plots.places, false, &Places::of_mark));
  const size_t most = std::clamp(kMostPointsOfAll / std::max<size_t>(long_lines, 1), kFewestPoints, kMostPoints);
  std::string text = "{\"axes\":{";
  for (const PlotAxis& axis : axes)
    text += format("{}\"{}\":\"{}\"", text.back() == '{' ? "" : ",", axis.id, axis.unit);
  text += "},\"x\":[";
  std::vector<size_t> together;
  for (const Places& places : plots.places) {
    together.push_back((places.steps.size() + most - 1) / most);
    text += together.size() == 1 ? "{" : ",{";
    for (const PlotAxis& axis : axes) {
      const std::vector<double>& x = places.*axis.of;
      text += format("{}\"{}\":{}", &axis == &axes.front() ? "" : ",", axis.id,
                     all_finite(x) ? array_of(x, together.back(), Thinned::kLast, 9, axis.factor) : "[]");
    }
    text += "}";
  }
  text += "],\n\"plots\":[";
  for (const Plot& plot : plots.plots) {
    text += &plot == &plots.plots.front() ? "{" : ",\n{";
    if (plot.usual_low < plot.usual_high) text += format("\"usual\":[{},{}],", plot.usual_low, plot.usual_high);
    text += "\"lines\":[";
    for (const PlotLine& line : plot.lines)
      text +=
          format("{}{{\"name\":{},\"kind\":{},\"color\":{},\"light\":{},\"dots\":{},\"x\":{},\"y\":{}}}",
                 &line == &plot.lines.front() ? "" : ",\n", json_text(line.name), json_text(line.kind), line.color,
                 line.light, line.dots, line.places, array_of(line.values, together[line.places], Thinned::kMean, 5));
    text += "]}";
  }
  return text + "]}\n";
}

// A control that keeps its state when a live page is replaced: its id depends on nothing that changes.
std::string input_of(const std::string& key, const std::string& type, const std::string& name, const std::string& value,
                     const std::string& more = "") {
  return format("<input type=\"{0}\" name=\"{2}\" value=\"{3}\" id=\"{1}-{2}-{3}\"{4}>", type, escaped(key), name,
                escaped(value), more);
}

std::string checkbox(const std::string& key, const std::string& name, const std::string& value,
                     const std::string& label, bool checked = true) {
  return "<label>" + input_of(key, "checkbox", name, value, checked ? " checked" : "") + label + "</label>";
}

// The names and the kinds of lines, in their order.
struct Choices {
  std::vector<const PlotLine*> names{};
  std::vector<std::string> kinds{};
  std::set<std::string> of_lines{};  // the kinds that a reader can hide: others are of marks only
  bool smooth = false;               // there are lines that the script smooths
  bool all_have_dots = true;         // every name has a line with dots
};

Choices choices_of(const Plots& plots) {
  Choices all;
  std::set<std::string> names, with_dots;
  for (const Plot& plot : plots.plots)
    for (const PlotLine& line : plot.lines) {
      if (names.insert(line.name).second) all.names.push_back(&line);
      if (std::find(all.kinds.begin(), all.kinds.end(), line.kind) == all.kinds.end()) all.kinds.push_back(line.kind);
      if (!line.mark) all.of_lines.insert(line.kind);
      if (line.dots && !line.mark && !line.kind.empty()) with_dots.insert(line.name);
      all.smooth = all.smooth || !line.dots;
    }
  all.all_have_dots = with_dots == names;
  return all;
}

std::string controls_of(const Plots& plots, const std::vector<PlotAxis>& axes) {
  const std::string key = escaped(plots.key);
  const Choices choices = choices_of(plots);
  const bool many = choices.names.size() > kFewNames;
  const auto shown_if = [](bool shown) { return shown ? "" : " hidden"; };
  std::string html = "<div class=\"controls\"><fieldset><legend>Over</legend>";
  for (const PlotAxis& axis : axes)
    html += "<label>" + input_of(plots.key, "radio", "axis", axis.id, &axis == &axes.front() ? " checked" : "") +
            axis.unit + "</label>";
  html += format(
      "</fieldset><label{}>Smoothing<input type=\"range\" name=\"smooth\" id=\"{}-smooth\" min=\"0\" max=\"0.99\" "
      "step=\"0.01\" value=\"0\"></label>",
      shown_if(choices.smooth), key);
  html += format("<fieldset{}><legend>Show</legend>", shown_if(choices.kinds.size() > 1));
  for (const std::string& kind : choices.kinds)
    html += kind.empty() || !choices.of_lines.contains(kind)
                ? input_of(plots.key, "hidden", "kind", printable(kind))
                // The evaluations alone are easier to compare for many runs.
                : checkbox(plots.key, "kind", printable(kind), escaped(kind),
                           !many || !choices.all_have_dots || kind != kTrainingKind);
  html += format(
      "</fieldset><label{0}>Filter<input type=\"search\" name=\"filter\" id=\"{1}-filter\" placeholder=\"words of a "
      "name\"></label><label{0}><input type=\"checkbox\" name=\"all\" id=\"{1}-all\" checked>all</label>"
      "<input type=\"hidden\" name=\"zoom\" id=\"{1}-zoom\" value=\"null\"></div>\n<ul class=\"legend keys\"{2}>",
      shown_if(many), key, shown_if(choices.names.size() > 1));
  for (const PlotLine* line : choices.names)
    html += "<li>" +
            checkbox(plots.key, "name", printable(line->name),
                     format("<i class=\"{}\"></i>{}", class_of(line->color, 'b'), escaped(line->name))) +
            "</li>";
  return html +
         "</ul>\n<p class=\"about controls\">Drag: zoom; double click: whole range; keys on a chart: ← → values, + − "
         "zoom, Escape.</p>\n";
}

}  // namespace

std::string html_of(const Plots& plots) {
  const std::vector<PlotAxis> axes = axes_of(plots);
  std::string charts;
  Plots drawn{plots.key, plots.places};
  for (const Plot& plot : plots.plots) {
    Figure figure = figure_of(chart_along(plots, plot, axes.front(), "epochs"));
    if (figure.picture.empty()) continue;
    const size_t number = drawn.plots.size();
    drawn.plots.push_back(plot);
    figure.title = plot.title;
    figure.tools =
        format("<label class=\"tools\"><input type=\"checkbox\" name=\"log{0}\" id=\"{1}-log{0}\"{2}>log</label>",
               number, escaped(plots.key), plot.log_y ? " checked" : "");
    if (const PlotAxis& time = axes.back(); std::string(time.id) == "time")
      figure.legend += "<details class=\"other\"><summary>Over time</summary>\n" +
                       figure_of(chart_along(plots, plot, time, "time")).picture + "</details>\n";
    charts += html_of(figure);
  }
  if (drawn.plots.empty()) return "";
  return "<form class=\"charts\">\n" + controls_of(drawn, axes) + figures(charts) +
         "<script type=\"application/json\">" + json_of(drawn, axes) + "</script>\n</form>\n";
}

}  // namespace owt

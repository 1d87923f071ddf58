#include "src/report/pages/chart.h"

#include <algorithm>
#include <cmath>

#include "src/system/log.h"

namespace owt {
namespace {

constexpr double kChartWidth = 440, kChartHeight = 250, kLeftOfAxes = 60, kRightOfAxes = 18, kAboveAxes = 24,
                 kBelowAxes = 40;
constexpr int kChartColumns = 250;
constexpr double kRowsOfNumbers = 12, kRowsOfMany = 3;  // rows of numbers for a line, and for a line of many
constexpr size_t kMostDots = 60;
constexpr size_t kFewLines = 16;   // more are drawn thin
constexpr double kFarAbove = 100;  // an outlier is this many times the 90th percentile

struct Extent {
  double low = INFINITY, high = -INFINITY;

  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value), high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  Extent widened() const {  // for the case that all values are equal, except for rounding errors
    const double size = std::max(std::abs(low), std::abs(high));
    if (high - low > 1e-9 * size) return *this;
    const double by = size == 0 ? 1 : size / 2;
    return {low - by, high + by};
  }
};

bool is_drawn(const Point& point, bool log_y) {
  return std::isfinite(point.x) && std::isfinite(point.y) && (!log_y || point.y > 0);
}

// A line as drawn: its columns if it has more points than columns, else its points.
struct Drawn {
  const Line& line;
  std::vector<ChartColumn> columns;
  bool band;
};

// Ticks at powers of ten; for few powers also at 2 and 5 times them; for less than one power at round numbers.
std::vector<double> log_ticks_of(double low, double high) {
  if (high - low < 1) return ticks_of(std::pow(10, low), std::pow(10, high), 5);
  std::vector<double> ticks;
  const double step = std::ceil((high - low) / 6);
  for (double power = std::floor(low); power <= high; power += step)
    for (const double factor : {1.0, 2.0, 5.0})
      if (const double at = power + std::log10(factor); at >= low && at <= high && (factor == 1 || high - low < 2.5))
        ticks.push_back(factor * std::pow(10, power));
  return ticks;
}

class Axes {
 public:
  Axes(const LineChart& chart, const std::vector<Drawn>& drawn) : log_(chart.log_y), log_x_(chart.log_x) {
    const double most = log_ ? INFINITY : most_to_show(drawn);
    for (const Line& line : chart.lines)
      if (!line.points.empty()) x_.take(on_x_scale(line.points.front().x)), x_.take(on_x_scale(line.points.back().x));
    for (const Drawn& each : drawn)
      for (const ChartColumn& column : each.columns)
        if (column.points > 0) y_.take(on_scale(std::min(column.mean, most)));
    empty_ = y_.empty();
    if (empty_) return;
    x_ = x_.widened(), y_ = y_.widened();
    if (!log_x_ && x_.low > 0 && x_.low < x_.high / 20) x_.low = 0;
    if (!log_ && y_.low > 0 && y_.low < y_.high / 3) y_.low = 0;
    if (y_.low != 0) y_.low -= (y_.high - y_.low) * 0.04;
    y_.high += (y_.high - y_.low) * 0.04;
  }

  bool empty() const { return empty_; }
  double x(double value) const {
    const double at = (on_x_scale(value) - x_.low) / (x_.high - x_.low);
    return kLeftOfAxes + at * (kChartWidth - kLeftOfAxes - kRightOfAxes);
  }
  double y(double value) const {  // values outside are drawn at the edge
    const double at = std::clamp((on_scale(value) - y_.low) / (y_.high - y_.low), 0.0, 1.0);
    return kChartHeight - kBelowAxes - at * (kChartHeight - kAboveAxes - kBelowAxes);
  }
  std::vector<double> x_ticks() const { return log_x_ ? log_ticks_of(x_.low, x_.high) : ticks_of(x_.low, x_.high, 6); }
  std::vector<double> y_ticks() const { return log_ ? log_ticks_of(y_.low, y_.high) : ticks_of(y_.low, y_.high, 5); }

 private:
  // Limits the range if a run diverges, so that other runs can still be distinguished.
  static double most_to_show(const std::vector<Drawn>& drawn) {
    std::vector<double> values;
    for (const Drawn& each : drawn)
      for (const ChartColumn& column : each.columns)
        if (column.points > 0) values.push_back(column.mean);
    if (values.empty()) return INFINITY;
    const auto high = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) * 9 / 10);
    std::nth_element(values.begin(), high, values.end());
    const double largest = *std::max_element(high, values.end());
    return *high > 0 && largest > kFarAbove * *high ? 2 * *high : INFINITY;
  }
  double on_scale(double value) const { return log_ ? std::log10(value) : value; }
  double on_x_scale(double value) const { return log_x_ ? std::log10(value) : value; }

  bool log_, log_x_, empty_ = true;
  Extent x_, y_;
};

std::vector<ChartColumn> points_as_columns(const std::vector<Point>& points, bool log_y) {
  std::vector<ChartColumn> all;
  for (const Point& p : points) {
    const bool drawn = is_drawn(p, log_y);
    all.push_back({p.x, p.y, p.y, p.y, drawn ? 1 : 0});
  }
  return all;
}

Drawn drawn_of(const Line& line, const Extent& x, const LineChart& chart) {
  const bool log_y = chart.log_y;
  if (chart.log_x || std::ssize(line.points) <= kChartColumns)
    return {line, points_as_columns(line.points, log_y), false};
  if (!log_y) return {line, columns_of(line.points, x.low, x.high, kChartColumns), true};
  std::vector<Point> positive;
  for (const Point& p : line.points)
    if (is_drawn(p, true)) positive.push_back(p);
  return {line, columns_of(positive, x.low, x.high, kChartColumns), true};
}

std::string line_path(const Drawn& drawn, const Axes& axes) {
  std::string path;
  bool begins = true;
  for (const ChartColumn& column : drawn.columns) {
    // A column without points between others does not break a band's line; a value that is not finite does.
    if (column.points == 0) {
      begins = begins || !drawn.band;
      continue;
    }
    path += format("{}{:.1f} {:.1f}", begins ? 'M' : 'L', axes.x(column.x), axes.y(column.mean));
    begins = false;
  }
  return path;
}

std::string band_path(const Drawn& drawn, const Axes& axes) {
  std::string up, down;
  for (const ChartColumn& column : drawn.columns) {
    if (column.points == 0) continue;
    up += format("{}{:.1f} {:.1f}", up.empty() ? 'M' : 'L', axes.x(column.x), axes.y(column.high));
    down = format("L{:.1f} {:.1f}", axes.x(column.x), axes.y(column.low)) + down;
  }
  return up + down + "Z";
}

bool has_many_lines(const LineChart& chart) {
  return static_cast<size_t>(std::ranges::count(chart.lines, false, &Line::mark)) > kFewLines;
}

std::string whole_name(const Line& line) { return line.kind.empty() ? line.name : line.name + ", " + line.kind; }

// Bands of many lines would hide each other.
std::string svg_line(const Drawn& drawn, const Axes& axes, bool many) {
  const Line& line = drawn.line;
  std::string svg;
  if (drawn.band && !many)
    svg += format("<path class=\"band b{}\" d=\"{}\"/>\n", line.color % kColors, band_path(drawn, axes));
  svg += format("<path class=\"line {}{}\" d=\"{}\"/>\n", class_of(line.color, 's'), line.light ? " light" : "",
                line_path(drawn, axes));
  // A single point cannot be drawn as a line.
  if ((!line.dots && drawn.columns.size() > 1) || drawn.columns.size() > kMostDots) return svg;
  for (const ChartColumn& column : drawn.columns)
    if (column.points > 0)
      svg +=
          format("<circle class=\"b{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.4\"><title>{}: {} at {}</title></circle>\n",
                 line.color % kColors, axes.x(column.x), axes.y(column.mean), escaped(whole_name(line)),
                 short_number(column.mean), short_number(column.x));
  return svg;
}

// Short, since a phone shows ticks large: "0.0025", "1e-4", "20000", "1e5".
std::string tick_text(double value) {
  const std::string plain = short_number(value);
  if (value == 0 || (plain.size() <= 5 && plain.find('e') == std::string::npos)) return plain;
  const auto power = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  const std::string text = format("{:.3g}e{}", value / std::pow(10, power), power);
  return text.size() < plain.size() ? text : plain;
}

std::string svg_axes(const LineChart& chart, const Axes& axes) {
  const double bottom = kChartHeight - kBelowAxes, right = kChartWidth - kRightOfAxes;
  std::string svg;
  if (chart.usual_low < chart.usual_high)
    svg += format("<path class=\"usual\" d=\"M{0:.0f} {1:.1f}H{2:.0f}V{3:.1f}H{0:.0f}Z\"/>\n", kLeftOfAxes,
                  axes.y(chart.usual_high), right, axes.y(chart.usual_low));
  for (const double tick : axes.y_ticks())
    svg += format(
        "<path class=\"grid\" d=\"M{:.0f} {:.1f}H{:.0f}\"/><text x=\"{:.0f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeftOfAxes, axes.y(tick), right, kLeftOfAxes - 6, axes.y(tick) + 4, tick_text(tick));
  for (const double tick : axes.x_ticks())
    svg += format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", axes.x(tick), bottom + 16,
                  tick_text(tick));
  svg += format("<path class=\"axis\" d=\"M{:.0f} {:.0f}H{:.0f}\"/>\n", kLeftOfAxes, bottom, right);
  svg += format("<text class=\"name\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", right, bottom + 34,
                escaped(chart.x_name));
  svg += format("<text class=\"name\" x=\"2\" y=\"12\">{}</text>\n", escaped(chart.y_name));
  return svg;
}

// First, last, smallest and largest point of a line.
struct Summary {
  int64_t points = 0;
  Point first{}, last{}, least{}, largest{};
};

Summary summary_of(const Line& line, bool log_y) {
  Summary all;
  for (const Point& p : line.points) {
    if (!is_drawn(p, log_y)) continue;
    if (all.points++ == 0) all.first = all.least = all.largest = p;
    if (p.y < all.least.y) all.least = p;
    if (p.y > all.largest.y) all.largest = p;
    all.last = p;
  }
  return all;
}

std::string about_of(const LineChart& chart) {
  std::string text;
  for (const Line& line : chart.lines) {
    const Summary all = summary_of(line, chart.log_y);
    if (all.points == 0 || line.mark) continue;
    text += format("{}{}: {} at first, {} at {} {} in the end, between {} and {}", text.empty() ? "" : "; ",
                   whole_name(line), short_number(all.first.y), short_number(all.last.y), chart.x_name,
                   short_number(all.last.x), short_number(all.least.y), short_number(all.largest.y));
  }
  return text + ".";
}

// An entry for each name.
std::vector<Key> keys_of(const LineChart& chart) {
  std::vector<Key> keys;
  for (const Line& line : chart.lines)
    if (!line.mark && !line.points.empty() && (keys.empty() || keys.back().text != line.name))
      keys.push_back({line.name, line.color, line.light && line.kind.empty()});
  return keys;
}

HtmlTable numbers_of(const LineChart& chart) {
  HtmlTable table{{"line", chart.x_name, chart.y_name}, {}};
  const double most = has_many_lines(chart) ? kRowsOfMany : kRowsOfNumbers;
  for (const Line& line : chart.lines) {
    if (line.mark) continue;
    const auto count = static_cast<double>(line.points.size());
    const double rows = std::min(most, count);
    for (double row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(rows < 2 ? 0 : std::round(row * (count - 1) / (rows - 1)));
      table.rows.push_back({whole_name(line), short_number(line.points[at].x), short_number(line.points[at].y)});
    }
  }
  return table;
}

}  // namespace

std::vector<ChartColumn> columns_of(std::span<const Point> points, double begin, double end, int columns) {
  std::vector<ChartColumn> all;
  const double width = (end - begin) / columns;
  for (const Point& p : points) {
    if (!std::isfinite(p.x) || p.x < begin || p.x > end) continue;
    const auto at = std::min(static_cast<size_t>((p.x - begin) / width), static_cast<size_t>(columns - 1));
    while (all.size() <= at) all.push_back({begin + (static_cast<double>(all.size()) + 0.5) * width});
    if (!std::isfinite(p.y)) continue;
    ChartColumn& column = all[at];
    if (column.points == 0) column.low = column.high = p.y;
    column.low = std::min(column.low, p.y), column.high = std::max(column.high, p.y);
    column.mean += p.y, ++column.points;
  }
  for (ChartColumn& column : all)
    if (column.points > 0) column.mean /= static_cast<double>(column.points);
  return all;
}

std::vector<double> ticks_of(double low, double high, int count) {
  const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough) step = factor * power;
  std::vector<double> ticks;
  // Adding 1 to an i above 2^53 changes nothing.
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && std::ssize(ticks) <= count; ++i)
    ticks.push_back(i * step + 0.0);  // turns -0 into 0
  return ticks;
}

Figure figure_of(const LineChart& chart) {
  Extent x;
  for (const Line& line : chart.lines)
    for (const Point& p : line.points) x.take(p.x);
  std::vector<Drawn> drawn;
  if (!x.empty())
    for (const Line& line : chart.lines) drawn.push_back(drawn_of(line, x.widened(), chart));
  const Axes axes(chart, drawn);
  Figure figure{chart.title, "", about_of(chart), numbers_of(chart)};
  if (axes.empty()) return {chart.title, "", "There is no value to draw."};
  const bool many = has_many_lines(chart);
  figure.picture = format("<svg class=\"chart{}\" viewBox=\"0 0 {:.0f} {:.0f}\" {}>\n", many ? " many" : "",
                          kChartWidth, kChartHeight, picture_label(chart.title + ". " + figure.about)) +
                   svg_axes(chart, axes);
  for (const Drawn& each : drawn)
    if (!each.line.points.empty()) figure.picture += svg_line(each, axes, many);
  figure.picture += "</svg>\n";
  figure.legend = legend_of(keys_of(chart));
  figure.about_shown = false;
  return figure;
}

}  // namespace owt

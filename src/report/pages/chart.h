// Line charts as SVG: several lines on one pair of axes. If a line has more points than the chart has columns of
// pixels, each column shows the range of its points as a band and their mean as the line. A million points then take as
// much space as a thousand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/report/pages/html.h"

namespace owt {

struct Point {
  double x = 0, y = 0;  // the line is broken where y is NaN
};

struct Line {
  std::string name;
  std::vector<Point> points;  // in order of x
  int color = 0;              // class of the page's style; colours from kColors on repeat, dashed
  bool light = false;         // drawn thin, for reference lines
  bool dots = false;          // a dot for each point
  std::string kind{};         // distinguishes lines of one name, which have one entry in the legend
  bool mark = false;          // it marks an event: not in the numbers, nor one of many lines
};

struct LineChart {
  std::string title, x_name, y_name;
  std::vector<Line> lines{};
  bool log_y = false;                    // points <= 0 are left out
  double usual_low = 0, usual_high = 0;  // a range of y that is shaded; none if both are equal
  bool log_x = false;                    // all x must be above 0; every point is drawn, however many
};

// What a column of pixels shows of a line.
struct ChartColumn {
  double x = 0;  // x of its middle
  double low = 0, high = 0, mean = 0;
  int64_t points = 0;  // number of points with a finite y; 0: the line is broken here
};
// The columns of [begin, end] in order, up to the last one with points.
std::vector<ChartColumn> columns_of(std::span<const Point> points, double begin, double end, int columns);

// Places of about `count` ticks from low to high, at 1, 2 or 5 times a power of ten.
std::vector<double> ticks_of(double low, double high, int count);

// Includes legend and numbers. A chart without points says so.
Figure figure_of(const LineChart& chart);

}  // namespace owt

// Line charts as SVG: several lines on one pair of axes. Of a line with more points than the chart has columns of
// pixels, each column shows the range of its points as a band and their mean as the line, so that a million points
// take as much room as a thousand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/train/pages/html.h"

namespace owt {

struct Point {
  double x = 0, y = 0;  // y may be no number: there the line is broken
};

struct Line {
  std::string name;
  std::vector<Point> points;  // by rising x
  int color = 0;              // a class of the page's style; from kColors on they begin again, dashed
  bool light = false;         // drawn thin, for what others are held against
  bool dots = false;          // a dot for each point
};

struct LineChart {
  std::string title, x_name, y_name;
  std::vector<Line> lines;
  bool log_y = false;                    // points that are not above 0 are left out
  double usual_low = 0, usual_high = 0;  // a range of y that is shaded; equal: none
};

// What a column of pixels shows of a line.
struct ChartColumn {
  double x = 0;  // of its middle
  double low = 0, high = 0, mean = 0;
  int64_t points = 0;  // with a finite y; 0: the line is broken here
};
// The columns of [begin, end], in order, up to the last one with points.
std::vector<ChartColumn> columns_of(std::span<const Point> points, double begin, double end, int columns);

// Places of ticks from low to high, at 1, 2 or 5 times a power of ten, about `count` of them.
std::vector<double> ticks_of(double low, double high, int count);

// With its legend and numbers. A chart without a point says so.
Figure figure_of(const LineChart& chart);

}  // namespace owt

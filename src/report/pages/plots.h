// Charts whose x axis the reader chooses: steps, epochs or training time. The page has fixed pictures over epochs and,
// folded, over time; its script (charts.js) draws them again from the points, which the page has as JSON.
#pragma once

#include <string>
#include <vector>

#include "src/report/pages/chart.h"

namespace owt {

// x of a line's points on each axis, in order; NaN: unknown.
struct Places {
  std::vector<double> steps, epochs, hours;
  bool of_mark = false;  // the few places of a mark, which leave the number of points of other lines as it is
};

constexpr const char* kTrainingKind = "training";

struct PlotLine {
  std::string name;    // the entry of the legend
  std::string kind{};  // "training", "test": distinguishes lines of one name; empty: there is one kind only
  int color = 0;       // see Line
  bool light = false, dots = false;
  size_t places = 0;             // index of Plots::places
  std::vector<double> values{};  // one per place; the line is broken where one is NaN
  bool mark = false;             // see Line; no control hides its kind
};

struct Plot {
  std::string title, unit;
  std::vector<PlotLine> lines;
  bool log_y = false;
  double usual_low = 0, usual_high = 0;  // see LineChart
};

// Charts of the same lines, with one legend and one set of controls.
struct Plots {
  std::string key;  // unique in the page
  std::vector<Places> places{};
  std::vector<Plot> plots{};
};

// If a line has more points than kMostPoints (fewer with many lines), the script gets the means of
// consecutive points.
constexpr size_t kMostPoints = 1000;

// Plots without a point are left out. Empty: all are.
std::string html_of(const Plots& plots);

}  // namespace owt

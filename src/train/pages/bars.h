// Bars, each of several parts on one scale, as HTML: its texts stay as large as the others of the page on a phone.
#pragma once

#include <string>
#include <vector>

#include "src/train/pages/html.h"

namespace owt {

struct Bar {
  std::string name;
  std::vector<double> values;  // of the parts, in order; those below 0 count as 0
  double most = 0;             // of all of which this bar is typical, marked by a line; 0: there is none
  std::string most_is{};       // "rank 3"
};

struct Bars {
  std::string title, unit;
  std::vector<std::string> parts;
  std::vector<int> colors{};  // of the parts: classes of the page's style; empty: 0, 1, ...
  std::vector<Bar> bars{};
};

// With its legend and numbers.
Figure figure_of(const Bars& bars);

}  // namespace owt

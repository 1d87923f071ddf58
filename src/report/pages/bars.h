// Bars of several parts on one scale, as HTML: on a phone their texts are as large as other texts of the page.
#pragma once

#include <string>
#include <vector>

#include "src/report/pages/html.h"

namespace owt {

struct Bar {
  std::string name;
  std::vector<double> values;  // the parts in order; negative values count as 0
  double most = 0;             // largest of the values of which this bar is typical, marked by a line; 0: none
  std::string most_is{};       // "worker 3"
};

struct Bars {
  std::string title, unit;
  std::vector<std::string> parts;
  std::vector<int> colors{};  // classes of the page's style, one per part; empty: 0, 1, ...
  std::vector<Bar> bars{};
};

// Includes legend and numbers.
Figure figure_of(const Bars& bars);

}  // namespace owt

// The state of runs in the text format of Prometheus (its documentation, "Exposition formats", version 0.0.4).
#pragma once

#include <string>

#include "src/report/pages/sections.h"

namespace owt {

// Gauges of the latest step and the latest evaluation of each split, labelled with the run. Unknown values are left
// out.
std::string prometheus_text(Runs runs);

}  // namespace owt

// Where runs are, in the text format of Prometheus (its documentation, "Exposition formats", version 0.0.4).
#pragma once

#include <string>

#include "src/train/pages/sections.h"

namespace owt {

// Gauges of the newest step and the newest evaluation of each split, labelled with the run; what is not known is left
// out.
std::string prometheus_text(Runs runs);

}  // namespace owt

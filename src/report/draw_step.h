// A drawing of predicted steps over time, for people: what a rank computes, and what its link carries at the same time.
#pragma once

#include <string>
#include <vector>

#include "src/predict/step_price.h"

namespace owt {

struct DrawnStep {
  Plan plan;
  Prediction prediction;
  std::vector<TimedAction> times;  // actions of rank 0, or of every stage, from price_step()
};

// An SVG document of the steps, one below the other on one time scale; each stage of a pipeline has a panel. Steps that
// are short on this scale are repeated on their own. It is self-contained, and light or dark like its reader's screen.
std::string draw_steps(const std::vector<DrawnStep>& steps);

// The text of its style element. A page that embeds the drawing has to allow it.
extern const char* const kStepStyle;

}  // namespace owt

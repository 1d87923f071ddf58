// A drawing of predicted steps in time, for people: what a rank computes, and what is on the wire meanwhile.
#pragma once

#include <string>
#include <vector>

#include "src/parallel/step_price.h"

namespace owt {

struct DrawnStep {
  Plan plan;
  Prediction prediction;
  std::vector<TimedAction> times;  // of rank 0, or of every stage, as price_step() gives them
};

// One below the other, every stage of a pipeline by itself, on one scale of time: an SVG document that needs nothing
// else, light or dark as its reader's screen is.
std::string draw_steps(const std::vector<DrawnStep>& steps);

// The text of its style element, which a page that holds the drawing has to allow.
extern const char* const kStepStyle;

}  // namespace owt

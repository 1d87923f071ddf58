// What is asked of an evaluation, and what comes out.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace owt {

struct Evaluation {
  double loss = 0;            // mean over the images
  double top1 = 0, top5 = 0;  // fractions
  int64_t images = 0;
};

struct EvaluationRequest {
  Split split = Split::kTest;
  Views views{};                           // of each image
  std::string predictions{}, confusion{};  // CSV files to write (predictions.h); empty: none

  // More is wanted than sums over the rows, so whole logits are (PlanRequest::whole_logits).
  bool wants_logits() const { return views.count > 1 || !predictions.empty() || !confusion.empty(); }
};

}  // namespace owt

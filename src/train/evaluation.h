// What is asked of an evaluation, and what comes out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// Of the images of one class.
struct ClassAccuracy {
  std::string name;  // its number where it has none
  int64_t images = 0, top1 = 0, top5 = 0;
  std::string taken_for{};  // the other class that most of them were taken for, of equal ones the first; empty: none
  int64_t times = 0;        // how many
  int number = 0;
};

struct Evaluation {
  double loss = 0;            // mean over the images
  double top1 = 0, top5 = 0;  // fractions
  int64_t images = 0;
  double seconds = 0;                    // that it took, but for reading the weights
  std::vector<ClassAccuracy> classes{};  // those with images, in order, where EvaluationRequest::per_class asks
};

struct EvaluationRequest {
  Split split = Split::kTest;
  Views views{};                           // of each image
  std::string predictions{}, confusion{};  // CSV files to write (predictions.h); empty: none
  bool per_class = false;

  // More is wanted than sums over the rows, so whole logits are (PlanRequest::whole_logits).
  bool wants_logits() const { return views.count > 1 || !predictions.empty() || !confusion.empty() || per_class; }
};

}  // namespace owt

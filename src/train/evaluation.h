// The request for an evaluation, and its result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

// The result for the images of one class.
struct ClassAccuracy {
  std::string name;  // its number if it has no name
  int64_t images = 0, top1 = 0, top5 = 0;
  std::string taken_for{};  // the most frequent wrong class, the first among equals; empty: none
  int64_t times = 0;        // how often that class was predicted
  int number = 0;
};

struct Evaluation {
  double loss = 0;            // mean over the images
  double top1 = 0, top5 = 0;  // fractions
  int64_t images = 0;
  double seconds = 0;  // duration without reading the weights
  // With logistic units and targets: the mean of the classes' average precisions (predictions.h). Classes without a
  // positive image, one with a target of at least 0.5, do not count. Not a number if all are without.
  std::optional<double> average_precision{};
  std::vector<ClassAccuracy> classes{};  // classes with images, in order, if EvaluationRequest::per_class is set
};

// Whether top-5 depends on the network: with five classes or fewer it is always 100 %.
constexpr bool has_top5(int64_t classes) { return classes > 5; }
// Each class counts equally. 0 without classes.
double mean_top1(const std::vector<ClassAccuracy>& classes);
std::string accuracy_text(const Evaluation& of, int64_t classes);  // "top-1 76.43 %, top-5 98.41 %"

struct EvaluationRequest {
  Split split = Split::kTest;
  Views views{};                           // views of each image
  std::string predictions{}, confusion{};  // CSV files to write (predictions.h); empty: none
  bool per_class = false;
  bool average_precision = false;

  // Whether sums over the rows are not enough, so that the logits are needed.
  bool wants_logits() const {
    return views.count > 1 || !predictions.empty() || !confusion.empty() || per_class || average_precision;
  }
};

}  // namespace owt

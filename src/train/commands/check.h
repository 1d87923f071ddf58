// `owt check`: whether a step's gradients are those of its loss, and those that one worker finds.
//
// In each parameter a few elements are moved a little to either side, and the difference of the loss of the whole step,
// on all workers, over the distance is held against what an update takes from the element. And each parameter's whole
// gradient is held against that of one worker alone, which has no transfers. Images are made up, and weights
// are drawn so that activations are of size one; sums are f32, whatever the recipe's precision, since bf16 rounds away
// what is looked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/train/settings.h"

namespace owt {

struct CheckOptions {
  int64_t rows = 0;  // of the step; 0: a few for each worker
  int samples = 3;   // elements of each parameter that are moved: the one with the largest gradient, and drawn ones
  int threads = 0;   // of all ranks together; 0: all cores
};

enum class Verdict { kRight, kWrong, kUnclear };
const char* name_of(Verdict verdict);  // "right", ...

struct CheckedParameter {
  std::string name;
  int64_t elements = 0;
  double gradient = 0;  // its norm
  // Of the elements that were moved, relative to the norm of their gradients: how far those are from the differences,
  // and how far differences over other distances are from each other.
  double error = 0, noise = 0;
  Verdict of_loss = Verdict::kUnclear;
  // The norm of its difference from one worker's gradient, relative to that; unknown where there is one worker only, or
  // where what is computed depends on the number of workers.
  std::optional<double> from_one{};
  Verdict of_workers = Verdict::kUnclear;
};

struct CheckOutcome {
  std::string what;  // "8 rows on 2 workers under owt-a, fp32 on the CPU"
  double loss = 0;   // the mean over the rows
  int samples = 0;   // CheckOptions::samples
  std::optional<double> loss_of_one{};
  std::vector<CheckedParameter> parameters;
  std::string not_compared;  // why there is no from_one; empty: there is

  bool wrong() const;
  std::string table() const;  // with the verdict
};

// Ranks are threads. Throws Error for strategies whose step has no gradient of all its rows.
CheckOutcome check_gradients(Settings settings, const CheckOptions& options);

}  // namespace owt

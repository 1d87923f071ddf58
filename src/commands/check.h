// `owt check`: whether a step's gradients agree with its loss, and with the gradients of a single worker.
//
// In each parameter a few elements are moved slightly in both directions. The difference quotient of the loss of the
// whole step, on all workers, is compared with the element's update. Each parameter's whole gradient is also compared
// with the gradient of a single worker, which has no transfers. Images are synthetic, and weights are drawn so that
// activations have size one. Sums are f32 whatever the recipe's precision, since bf16 would round the effect away.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/recipe/settings.h"

namespace owt {

struct CheckOptions {
  int64_t rows = 0;  // rows of the step; 0: a few per worker
  int samples = 3;   // elements of each parameter that are moved: the one with the largest gradient, and random ones
  int threads = 0;   // threads of all ranks together; 0: all cores
};

enum class Verdict { kRight, kWrong, kUnclear };
const char* name_of(Verdict verdict);  // "right", ...

struct CheckedParameter {
  std::string name;
  int64_t elements = 0;
  double gradient = 0;  // norm of its gradient
  // For the moved elements, relative to the norm of their gradients. error: distance between gradients and quotients.
  // noise: distance between quotients over different distances.
  double error = 0, noise = 0;
  Verdict of_loss = Verdict::kUnclear;
  // The norm of the difference to one worker's gradient, relative to that gradient. Unset if there is only one worker,
  // or if the computation depends on the number of workers.
  std::optional<double> from_one{};
  Verdict of_workers = Verdict::kUnclear;
};

struct CheckOutcome {
  std::string what;  // "8 rows on 2 workers under owt-a, fp32 on the CPU"
  double loss = 0;   // mean over the rows
  int samples = 0;   // CheckOptions::samples
  std::optional<double> loss_of_one{};
  std::vector<CheckedParameter> parameters;
  std::string not_compared;  // why from_one is unset; empty: it is set

  bool wrong() const;
  std::string table() const;  // includes the verdict
};

// Ranks are threads. Throws Error for strategies whose step has no gradient of all its rows.
CheckOutcome check_gradients(Settings settings, const CheckOptions& options);

}  // namespace owt

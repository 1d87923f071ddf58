// Small training runs for tests: a recipe as text, ranks as threads, losses and weights as results.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/train/settings.h"

namespace owt {

struct SmallRun {
  std::vector<double> losses;                         // mean of each step
  std::map<std::string, std::vector<float>> weights;  // of rank 0 after the last step: its parts, by name
  std::vector<int64_t> bytes;                         // sent by each rank in all steps
  int64_t planned_bytes = 0;                          // of one full step
};

// A network with every kind of layer that does not depend on the ranks, on 12 x 12 images: convolutions (one grouped),
// both pools, lrn, dropout before and behind the boundary, three dense layers, 10 classes.
extern const char* const kSmallRecipe;

// Trains `steps` steps on the recipe's synthetic data. changes: "parallel.workers" -> "3" and so on.
SmallRun run_small(const std::string& recipe, int64_t steps, const Overrides& changes = {});

Settings small_settings(const std::string& recipe, const Overrides& changes = {});

}  // namespace owt

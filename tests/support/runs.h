// Small training runs for tests: a recipe as text, ranks as threads, and losses and weights as results.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/parallel/step.h"
#include "src/recipe/settings.h"

namespace owt {

struct SmallRun {
  std::vector<double> losses;            // mean of each step
  std::vector<double> gradient_norms;    // one for each step, if updates wait for them
  std::vector<int64_t> sampled_classes;  // StepResult::sampled_classes of each step
  // Parameters of rank 0 after the last step, by name; and their bf16 copies if the precision has them.
  std::map<std::string, std::vector<float>> weights, copies16;
  // Whole parameters after the last step, put together from the parts of all ranks.
  std::map<std::string, std::vector<float>> whole_weights;
  std::vector<int64_t> bytes;  // sent by each rank, without the steps that end an epoch with fewer rows
  int64_t planned_bytes = 0;   // for the same steps, the rank with the most bytes
  // for the same steps, each rank; model groups may have different numbers of rows
  std::vector<int64_t> planned_of_ranks;
};

// A network with every kind of layer that does not depend on the ranks, on 12 x 12 images: convolutions (one grouped),
// both pools, lrn, dropout in the front part and the back part, three dense layers, 10 classes. On the CPU.
extern const char* const kSmallRecipe;

// Trains `steps` steps on the recipe's synthetic data with the schedule's learning rates. As many steps are in flight
// as the device allows. changes: "parallel.workers" -> "3", "run.device" -> "cuda" and so on. beside_from,
// keeps_gradients: see PlanRequest. kind: for all steps; none: kind_of() of each step.
SmallRun run_small(const std::string& recipe, int64_t steps, const Overrides& changes = {},
                   int64_t beside_from = kUpdateBesideFrom, bool keeps_gradients = false,
                   std::optional<StepKind> kind = {});

// The small recipe with a cosine layer of `classes` outputs at its end and an ArcFace margin.
std::string cosine_recipe(int classes = 10);

// A recipe with generated images and model_text()'s model (tests/support/models.h) of ten classes. `data`: lines under
// [data].
std::string recipe_of(const std::string& input, const std::string& data, const std::string& layers, double rate = 0.05);

inline Overrides merged(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// For the small recipe: this optimizer type, with a rate and an eps for which the order of sums does not affect the
// result much. Under adamw a gradient of rounding errors counts as much as a large one.
Overrides with_optimizer(const std::string& type);

Settings small_settings(const std::string& recipe, const Overrides& changes = {});

}  // namespace owt

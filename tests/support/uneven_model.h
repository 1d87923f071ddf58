// A network with three dense layers of uneven widths for several ranks, and the weight shards of a rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "layers/base/param.h"
#include "src/plan/plan.h"
#include "tests/support/models.h"

namespace owt {

inline const char* const kModel = R"(
name = "small"
input = [2, 4, 4]
classes = 10
layer = [
  { name = "conv1", type = "conv", out = 3, kernel = 3, init = { type = "msra" } },
  { name = "relu1", type = "relu" },
  { name = "fc1", type = "dense", out = 7, bias = { init = { type = "gaussian", std = 0.5 } } },
  { name = "relu2", type = "relu" },
  { name = "drop2", type = "dropout", rate = 0.3 },
  { name = "fc2", type = "dense", out = 6, bias = { init = { type = "gaussian", std = 0.5 } } },
  { name = "relu3", type = "relu" },
  { name = "fc3", type = "dense", out = 10, init = { type = "uniform", low = -1, high = 1 } },
]
)";

constexpr uint64_t kSeed = 7;
using Values = std::map<std::string, std::vector<float>>;

inline Model small_model() { return model_of(kModel); }

inline Plan plan_of(Strategy strategy, int ranks, const Compute& on = {}) {
  return make_plan(small_model(), {.ranks = ranks, .strategy = strategy, .step_rows = 12, .on = on});
}

// What a parameter keeps of its whole value: some rows, or some columns of all.
inline std::vector<float> kept_of_whole(const std::vector<float>& whole, const Param& param) {
  const int64_t width = param.full_shape.row_elements();
  const Slice columns = param.columns.value_or(Slice{0, width});
  std::vector<float> kept;
  for (int64_t row = param.part.begin; row < param.part.end; ++row)
    kept.insert(kept.end(), whole.begin() + row * width + columns.begin, whole.begin() + row * width + columns.end);
  return kept;
}

}  // namespace owt

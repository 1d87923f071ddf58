// Initial weights from a file, except for layers that are trained from scratch (fine-tuning).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/groups.h"
#include "src/plan/rank_model.h"

namespace owt {

struct StartWeights {
  std::string file{};  // safetensors with the layers' names; empty: all weights are drawn
  // Layers that keep their drawn weights: names, also of composite layers, or shell patterns ("fc*").
  std::vector<std::string> except{};
  bool except_mismatched = false;  // also layers with a tensor that is missing in the file or has another shape
};

struct StartedFrom {
  int64_t taken = 0;                  // number of tensors
  std::vector<std::string> drawn{};   // names of layers
  std::vector<std::string> unused{};  // unused tensors of the file, on rank 0
};

// Collective: loads the weights into a model whose weights have been drawn. Throws Error as load_tensors() does, and
// for a name or pattern that matches no layer.
StartedFrom start_from(const StartWeights& start, RankModel& model, const Groups& groups);

// Logs a line with the loaded and the drawn weights, and a warning for each unused tensor of the file.
void log_start_weights(const std::string& file, const StartedFrom& from);

}  // namespace owt

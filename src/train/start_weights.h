// Weights that training starts from: those of a file, but for layers that are to be learned anew (fine-tuning).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/parallel/groups.h"
#include "src/parallel/rank_model.h"

namespace owt {

struct StartWeights {
  std::string file{};  // safetensors, with the layers' names; empty: none, all weights are drawn
  // Layers whose weights stay as they were drawn: names, of a composite layer too, or patterns of the shell ("fc*").
  std::vector<std::string> except{};
  bool except_mismatched = false;  // and layers of which a tensor has another shape in the file, or is not there
};

struct StartedFrom {
  int64_t taken = 0;                  // tensors
  std::vector<std::string> drawn{};   // layers
  std::vector<std::string> unused{};  // tensors of the file, on rank 0
};

// Collective: loads the weights into a model whose weights have been drawn. Throws Error as load_tensors() does, and
// for a name or pattern that no layer has.
StartedFrom start_from(const StartWeights& start, RankModel& model, const Groups& groups);

// One line of what was taken and what was drawn, and a warning for each tensor of the file that nobody takes.
void log_start_weights(const std::string& file, const StartedFrom& from);

}  // namespace owt

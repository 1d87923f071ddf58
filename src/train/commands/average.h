// `owt average`: the mean of the weights that a run had at its last checkpoints.
// Source: Vaswani et al. 2017, section 6.1 (the last 5 checkpoints); Izmailov et al. 2018 say why it helps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace owt {

struct AverageOptions {
  std::string run_folder;
  int last = 0;        // so many of the newest checkpoints; 0: all that are there, five at most
  std::string out;     // safetensors file to write
  bool force = false;  // where there is one already, too
};

struct AverageOutcome {
  std::vector<int64_t> steps;  // of the checkpoints, rising
  int64_t values = 0;          // of each
};

// Every tensor of weights.safetensors, running averages of batch norm among them, is the mean of those of the
// checkpoints, added up in f64. In pieces, so that no more than a few MB are in memory. The file is complete or not
// there. Throws Error where there are fewer checkpoints, or of different tensors, or one is damaged.
AverageOutcome average_checkpoints(const AverageOptions& options);

}  // namespace owt

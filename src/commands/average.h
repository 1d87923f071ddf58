// `owt average`: the mean of the weights in a run's last checkpoints.
// Source: Vaswani et al. 2017, section 6.1 (the last 5 checkpoints); Izmailov et al. 2018 say why it helps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace owt {

struct AverageOptions {
  std::string run_folder;
  int last = 0;        // number of latest checkpoints; 0: all, at most five
  std::string out;     // safetensors file to write
  bool force = false;  // overwrite an existing file
};

struct AverageOutcome {
  std::vector<int64_t> steps;  // steps of the checkpoints, in increasing order
  int64_t values = 0;          // number of values in each
};

// Averages every tensor of weights.safetensors, including batch norm's running averages, in f64. It works in pieces, so
// only a few MB are in memory. The file is written atomically. Throws Error if there are too few checkpoints, if their
// tensors differ, or if one is damaged.
AverageOutcome average_checkpoints(const AverageOptions& options);

}  // namespace owt

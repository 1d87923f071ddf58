// `owt extract`: the outputs of one layer as features.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "src/train/settings.h"

namespace owt {

struct ExtractOptions {
  std::string weights;              // safetensors file
  std::string run_folder;           // for the data's facts (data_facts.h); empty: none
  std::string data;                 // folder; empty: see data_folder()
  int threads = 0;                  // 0: all cores
  std::string layer;                // whose outputs
  std::string out;                  // .npy file to write, f32: rows x features, or rows x C x H x W
  std::string labels;               // .npy file to write, i64: rows; empty: none
  Split split = Split::kTest;       // of the data set, in its order, in the centre view
  std::vector<std::string> photos;  // instead of the data set where there are any
};

// Returns the shape of what it wrote. Throws Error, and writes nothing, where a photo cannot be read.
Shape extract(const Settings& settings, const ExtractOptions& options);

}  // namespace owt

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
  std::string layer;                // the layer whose outputs are written
  std::string out;                  // .npy file to write, f32: rows x features, or rows x C x H x W
  std::string labels;               // .npy file to write, i64: rows; empty: none
  Split split = Split::kTest;       // split of the data set, in its order, in the centre view
  std::vector<std::string> photos;  // used instead of the data set, if any
};

// Returns the shape that it wrote. If a photo cannot be read, throws Error and writes nothing.
Shape extract(const Settings& settings, const ExtractOptions& options);

}  // namespace owt

// `owt extract`: the outputs of one layer as features.
#pragma once

#include <string>

#include "src/commands/features.h"

namespace owt {

struct ExtractOptions {
  FeatureSource source;
  std::string out;     // .npy file to write, f32: rows x features, or rows x C x H x W
  std::string labels;  // .npy file to write, i64: rows; empty: none
};

// Returns the shape that it wrote. If a photo cannot be read, throws Error and writes nothing.
Shape extract(const Settings& settings, const ExtractOptions& options);

}  // namespace owt

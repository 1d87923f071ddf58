// A model file: what is computed, with nothing about where.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "src/core/config.h"

namespace owt {

struct Model {
  std::string name;
  Shape input;  // one image: H x W x C (the file says C, H, W)
  int classes = 0;
  std::vector<Config> layers;  // the [[layer]] tables in order
};

// Reads name, input, classes and the layers, and builds the whole network once (no weights are allocated), so that
// everything wrong with it shows here. The loss is softmax cross-entropy over the last layer's outputs.
Model read_model(Config& config);

// All layers of the model, each with all of its outputs.
std::vector<std::unique_ptr<Layer>> whole_layers(const Model& model);

}  // namespace owt

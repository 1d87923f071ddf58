// A model file: what is computed, with nothing about where.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "src/core/config.h"

namespace owt {

struct Model {
  std::string name;
  Shape input;  // one image: H x W x C (the file says C, H, W)
  int classes = 0;
  int64_t row_group = 1;       // that the layers work on together (core/row_groups.h)
  std::vector<Config> layers;  // the [[layer]] tables in order
  // Names or patterns (layer_names.h) of layers that keep their weights in training. Not in the file: a recipe says it.
  std::vector<std::string> frozen{};
};

// Reads name, input, classes and the layers, and builds the whole network once (no weights are allocated), so that
// everything wrong with it shows here. The loss is softmax cross-entropy over the last layer's outputs.
Model read_model(Config& config);

// The layer of the table `index`, whole or a part of it (LayerSpec), with frozen parameters where the model has them.
std::unique_ptr<Layer> make_layer(const Model& model, size_t index, const Shape& in, std::optional<Slice> part = {},
                                  std::optional<Slice> inputs = {});
// All layers of the model, each with all of its outputs.
std::vector<std::unique_ptr<Layer>> whole_layers(const Model& model);

}  // namespace owt

// A model file: what is computed, independent of devices and ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/base/layer.h"
#include "src/system/config.h"

namespace owt {

struct Model {
  std::string name;
  Shape input;  // one image: H x W x C (the file says C, H, W)
  int classes = 0;
  int64_t row_group = 1;       // rows that the layers process together (core/row_groups.h)
  std::vector<Config> layers;  // the [[layer]] tables in order
  // Names or patterns (layer_names.h) of layers whose weights stay fixed in training. Set by the recipe, not by the
  // file.
  std::vector<std::string> frozen{};
  // Set by a recipe with Muon: the weights of more than one dimension are matrices (Param::is_matrix), except in layers
  // with these names or patterns, and except frozen weights and weights with a rate of 0. Unset: there are no matrices.
  std::optional<std::vector<std::string>> muon_except{};
};

// Reads name, input, classes and the layers, and builds the whole network once (without weights), so that all errors in
// it are reported here. The loss is softmax cross-entropy over the last layer's outputs.
Model read_model(Config& config);

// Layer `index`, or the given part of it (LayerSpec). Its parameters are frozen if the model says so.
std::unique_ptr<Layer> make_layer(const Model& model, size_t index, const Shape& in, std::optional<Slice> part = {},
                                  std::optional<Slice> inputs = {});
// The number of the layer with this name. Throws Error if there is none, with the nearest name, or if it is inside a
// composite layer.
size_t layer_number(const Model& model, const std::string& name);
// All layers of the model, each with all its outputs.
std::vector<std::unique_ptr<Layer>> whole_layers(const Model& model);

}  // namespace owt

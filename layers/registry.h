// The list of layer types. A new layer adds one line in registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/layer.h"

namespace owt {

struct LayerType {
  const char* type;
  std::unique_ptr<Layer> (*make)(const LayerSpec&);
};

std::span<const LayerType> layer_types();

// Makes the layer of one [[layer]] table: `config` holds name, type and the type's own keys; `in` is the shape of one
// row; `part` the output features to compute, `inputs` the input features to compute them from (see LayerSpec). Throws
// Error naming file, line and layer for a bad key, type or shape.
std::unique_ptr<Layer> make_layer(Config config, const Shape& in, std::optional<Slice> part = {},
                                  std::optional<Slice> inputs = {});

}  // namespace owt

// The list of layer types. A new layer adds one line in registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/base/layer.h"

namespace owt {

// Limit on the values of one image between two layers. Within it no byte count overflows, for any layer and batch.
constexpr int64_t kMostValues = int64_t{1} << 32;

struct LayerType {
  const char* type;
  std::unique_ptr<Layer> (*make)(const LayerSpec&);
};

std::span<const LayerType> layer_types();

// Makes the layer of one [[layer]] table. `types` lists the allowed types. spec.config holds name, type and the type's
// own keys. Throws Error with file, line and layer for an invalid key, type or shape.
std::unique_ptr<Layer> make_layer(const LayerSpec& spec, std::span<const LayerType> types = layer_types());
// Like the first function; takes the name from the table.
std::unique_ptr<Layer> make_layer(Config config, const Shape& in, std::optional<Slice> part = {},
                                  std::optional<Slice> inputs = {}, std::span<const LayerType> types = layer_types());

}  // namespace owt

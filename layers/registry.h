// The list of layer types. A new layer adds one line in registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/layer.h"

namespace owt {

// The most values of one image between two layers: with all layers and the largest batch no count of bytes overflows.
constexpr int64_t kMostValues = int64_t{1} << 32;

struct LayerType {
  const char* type;
  std::unique_ptr<Layer> (*make)(const LayerSpec&);
};

std::span<const LayerType> layer_types();

// Makes the layer of one [[layer]] table, of one of `types`: spec.config holds name, type and the type's own keys.
// Throws Error naming file, line and layer for a bad key, type or shape.
std::unique_ptr<Layer> make_layer(const LayerSpec& spec, std::span<const LayerType> types = layer_types());
// The same by the name in the table.
std::unique_ptr<Layer> make_layer(Config config, const Shape& in, std::optional<Slice> part = {},
                                  std::optional<Slice> inputs = {}, std::span<const LayerType> types = layer_types());

}  // namespace owt

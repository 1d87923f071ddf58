// Small nets for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/net/net.h"
#include "tests/support/harness.h"

namespace owt {

// A net of layers, given by TOML keys, with its initial weights.
inline Net net_of(const std::vector<std::string>& keys, const Shape& in, const Compute& on = {}) {
  std::vector<std::unique_ptr<Layer>> layers;
  Shape batch = in.batch_of(1);
  for (const std::string& k : keys) {
    layers.push_back(layer_from(k, batch));
    batch = layers.back()->out_shape(batch);
  }
  Net net(std::move(layers), in);
  for (Param* param : net.params()) {
    param->allocate(on);
    param->initialize(3);
  }
  return net;
}

}  // namespace owt

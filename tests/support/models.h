// Models that tests define as text.
#pragma once

#include <string>

#include "src/net/model.h"
#include "src/system/check.h"
#include "src/system/config.h"

namespace owt {

// `input` is "[C, H, W]"; `layers` are comma-separated TOML tables: { name = "fc", type = "dense", out = 4 }.
inline std::string model_text(const std::string& input, int64_t classes, const std::string& layers) {
  return concat("name = \"small\"\ninput = ", input, "\nclasses = ", classes, "\nlayer = [\n", layers, "\n]\n");
}

inline Model model_of(const std::string& text) {
  Config config = Config::text(text, "model.toml");
  return read_model(config);
}

inline Model model_of(const std::string& input, int64_t classes, const std::string& layers) {
  return model_of(model_text(input, classes, layers));
}

// Weights: conv 3, fc 4 x 12. A row at the boundary between front part and back part has 12 values, 48 bytes.
inline Model tiny_model() {
  return model_of("[1, 2, 2]", 4, R"(
  { name = "conv", type = "conv", out = 3, kernel = 1, bias = false },
  { name = "relu", type = "relu" },
  { name = "fc", type = "dense", out = 4, bias = false })");
}

}  // namespace owt

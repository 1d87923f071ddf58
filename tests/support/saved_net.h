// A network with random weights, stored in a weights file and ready to compute outputs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/net/net.h"
#include "src/recipe/settings.h"
#include "tests/support/temp_folder.h"

namespace owt {

// A model of layers, given by TOML keys (tests/support/harness.h), for images of C x H x W without augmentation.
Settings settings_of_layers(const std::vector<std::string>& keys, const std::string& input, int classes);

class SavedNet {
 public:
  explicit SavedNet(const Settings& settings);

  const std::string& weights() const { return weights_; }
  std::string file(const std::string& name) const { return folder_.file(name); }
  // The logits of images N x H x W x C, in evaluation.
  std::vector<float> logits(const Tensor& images);
  std::vector<float> weight(const std::string& name) const;  // a parameter, in memory order

 private:
  Net net_;
  TempFolder folder_;
  std::string weights_;
};

// Normally distributed images N x H x W x C; and the same images as N x C x H x W.
Tensor random_images(int64_t rows, const Shape& image, float deviation = 1);
std::vector<float> channels_first(const Tensor& images);

}  // namespace owt

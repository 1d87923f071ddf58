// A net that is entirely in the front part: tests how its gradients pass through buckets.
#pragma once

#include <vector>

#include "src/net/net.h"
#include "tests/support/harness.h"
#include "tests/support/models.h"

namespace owt {

constexpr int64_t kLayers = 5;
constexpr int64_t kEachItsOwn = 1, kTwoAndOne = 80, kAllInOne = 1 << 20;  // bytes of a bucket

// Parameters in layers 0, 2 and 3. conv1 has 2 * kernel * kernel + 2 elements, conv2 4 + 2, conv3 6 + 3.
inline Model front_model(int kernel) {
  const int side = kernel + 1;
  return model_of(concat("[1, ", side, ", ", side, "]"), 3,
                  concat(R"(
  { name = "conv1", type = "conv", out = 2, kernel = )",
                         kernel, R"( },
  { name = "relu1", type = "relu" },
  { name = "conv2", type = "conv", out = 2, kernel = 1 },
  { name = "conv3", type = "conv", out = 3, kernel = 1 },
  { name = "pool", type = "global_avg_pool" })"));
}

inline Net front_net(int kernel) {
  const Model model = front_model(kernel);
  return Net(whole_layers(model), model.input);
}

inline std::vector<float> counted(int64_t count, float scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(scale * static_cast<float>(i + 1));
  return values;
}

// Puts every gradient in place as a rank's backward would: element i of each parameter is scale * (i + 1).
inline void contribute(Net& net, float scale) {
  for (Param* param : net.params()) {
    param->grad_is_zero = false;
    param->grad.copy_from(upload(counted(param->grad.elements(), scale), param->shape(), Device::kCpu));
  }
}

}  // namespace owt

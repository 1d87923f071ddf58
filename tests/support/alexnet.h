// The one-tower network of "One weird trick", and its parameters.
#pragma once

#include <cstdint>

namespace owt {

inline const char* const kAlexNet = R"(
name = "alexnet"
input = [3, 224, 224]
classes = 1000
layer = [
  { name = "conv1", type = "conv", out = 64, kernel = 11, stride = 4, pad = 2 },
  { name = "relu1", type = "relu" },
  { name = "pool1", type = "max_pool", kernel = 3, stride = 2 },
  { name = "conv2", type = "conv", out = 192, kernel = 5, pad = 2 },
  { name = "relu2", type = "relu" },
  { name = "pool2", type = "max_pool", kernel = 3, stride = 2 },
  { name = "conv3", type = "conv", out = 384, kernel = 3, pad = 1 },
  { name = "relu3", type = "relu" },
  { name = "conv4", type = "conv", out = 256, kernel = 3, pad = 1 },
  { name = "relu4", type = "relu" },
  { name = "conv5", type = "conv", out = 256, kernel = 3, pad = 1 },
  { name = "relu5", type = "relu" },
  { name = "pool5", type = "max_pool", kernel = 3, stride = 2 },
  { name = "drop6", type = "dropout", rate = 0.5 },
  { name = "fc6", type = "dense", out = 4096 },
  { name = "relu6", type = "relu" },
  { name = "drop7", type = "dropout", rate = 0.5 },
  { name = "fc7", type = "dense", out = 4096 },
  { name = "relu7", type = "relu" },
  { name = "fc8", type = "dense", out = 1000 },
]
)";
constexpr int64_t kConvParams = 23'296 + 307'392 + 663'936 + 884'992 + 590'080;
constexpr int64_t kFc6Params = 9216 * 4096 + 4096, kFc7Params = 4096 * 4096 + 4096, kFc8Params = 4096 * 1000 + 1000;
constexpr int64_t kAllParams = kConvParams + kFc6Params + kFc7Params + kFc8Params;

}  // namespace owt

#include "layers/base/in_place.h"

#include <algorithm>

namespace owt {

std::vector<bool> work_in_place(std::span<Layer* const> layers) {
  std::vector<bool> shares;
  Content read = Content::kNothing;  // by all layers that wrote into the memory of the last output
  for (const Layer* layer : layers) {
    const std::optional<Content> left = layer->in_place();
    shares.push_back(!shares.empty() && left && *left >= read);
    read = shares.back() ? std::max(read, layer->reads_of_output()) : layer->reads_of_output();
  }
  return shares;
}

std::vector<bool> work_in_place(std::span<const std::unique_ptr<Layer>> layers) {
  std::vector<Layer*> all;
  for (const auto& layer : layers) all.push_back(layer.get());
  return work_in_place(all);
}

}  // namespace owt

#include "src/net/model.h"

#include <set>

#include "src/core/check.h"
#include "src/net/layer_types.h"

namespace owt {

Model read_model(Config& config) {
  Model model;
  model.name = config.string("name");
  const std::vector<int64_t> input = config.integers("input");
  if (input.size() != 3) config.error("input", "'input' must be [channels, height, width]");
  for (const int64_t extent : input)
    if (extent < 1 || extent > 65536) config.error("input", concat("'input' has an extent of ", extent));
  model.input = {input[1], input[2], input[0]};
  if (model.input.elements() > kMostValues)
    config.error("input", concat("'input' has ", model.input.elements(), " values"));
  model.classes = static_cast<int>(config.integer("classes", {.low = 2, .high = 1 << 24}));
  config.word("loss", "softmax_cross_entropy", {"softmax_cross_entropy"});
  model.layers = config.tables("layer");
  if (model.layers.empty()) config.error("layer", "the model has no [[layer]]");
  config.finish("a model");

  std::set<std::string> names;
  for (const Config& table : model.layers) {
    Config layer = table;
    const std::string name = layer.string("name");
    if (!names.insert(name).second) layer.error("name", concat("there are two layers called '", name, "'"));
  }
  const auto layers = whole_layers(model);
  Shape batch = model.input.batch_of(1);
  for (const auto& layer : layers) batch = layer->out_shape(batch);
  if (batch.row_elements() != model.classes)
    config.error("classes", concat("the last layer '", layers.back()->name(), "' has ", batch.row_elements(),
                                   " outputs, but 'classes' is ", model.classes));
  return model;
}

std::vector<std::unique_ptr<Layer>> whole_layers(const Model& model) {
  std::vector<std::unique_ptr<Layer>> layers;
  Shape batch = model.input.batch_of(1);
  for (const Config& table : model.layers) {
    layers.push_back(make_layer(table, batch.row(), {}, {}, net_layer_types()));
    batch = layers.back()->out_shape(batch);
  }
  return layers;
}

}  // namespace owt

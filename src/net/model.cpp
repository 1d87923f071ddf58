#include "src/net/model.h"

#include <algorithm>
#include <set>

#include "layers/base/linear_params.h"
#include "src/core/row_groups.h"
#include "src/net/hint.h"
#include "src/net/layer_names.h"
#include "src/net/layer_types.h"
#include "src/system/check.h"
#include "src/system/printable.h"

namespace owt {
namespace {

struct Names {
  std::set<std::string> layers, params;

  // Returns the first name of a layer or a parameter that was already added; empty if there is none. For a composite
  // layer it includes the inner layers, because files store weights by these names.
  std::string add(Layer& layer, const Shape& in) {
    if (!layers.insert(layer.name()).second) return layer.name();
    const auto inner = layer.inner(in);
    for (const Layer::Inner& each : inner)
      if (const std::string twice = add(*each.layer, each.in); !twice.empty()) return twice;
    if (!inner.empty()) return {};  // its parameters belong to the inner layers
    for (const Param* param : layer.params())
      if (!params.insert(param->name).second) return param->name;
    return {};
  }
};

// Filters that whiten patches of images have no use after other layers.
void check_whitening(const Model& model, size_t index, Layer& layer) {
  for (const Param* param : layer.params())
    if (param->init.type == Initializer::Type::kWhitening &&
        (index > 0 || layer.type() != "conv" || param->full_shape[3] != model.input[2]))
      model.layers[index].error("init", "init type 'whitening' is for the first layer, a convolution without groups");
}

// Whether the composite layer contains a layer of this name at any depth.
bool holds(const Layer& layer, const Shape& in, const std::string& name) {
  const auto inner = layer.inner(in);
  return std::any_of(inner.begin(), inner.end(), [&](const Layer::Inner& each) {
    return each.layer->name() == name || holds(*each.layer, each.in, name);
  });
}

// A model may have a hint in training.
std::span<const LayerType> types() {
  static const std::vector<LayerType> all = [] {
    std::vector<LayerType> list(net_layer_types().begin(), net_layer_types().end());
    list.push_back(hint_type());
    return list;
  }();
  return all;
}

}  // namespace

Model read_model(Config& config) {
  Model model;
  model.name = config.string("name");
  if (printable(model.name) != model.name) config.error("name", "a name holds no control characters");
  const std::vector<int64_t> input = config.integers("input");
  if (input.size() != 3) config.error("input", "'input' must be [channels, height, width]");
  for (const int64_t extent : input)
    if (extent < 1 || extent > 65536) config.error("input", concat("'input' has an extent of ", extent));
  model.input = {input[1], input[2], input[0]};
  if (model.input.elements() > kMostValues)
    config.error("input", concat("'input' has ", model.input.elements(), " values"));
  model.classes = static_cast<int>(config.integer("classes", {.low = 2, .high = kMostOutputs}));
  config.word("loss", "softmax_cross_entropy", {"softmax_cross_entropy"});
  model.layers = config.tables("layer");
  if (model.layers.empty()) config.error("layer", "the model has no [[layer]]");
  config.finish("a model");

  std::set<std::string> names;
  for (const Config& table : model.layers) {
    Config layer = table;
    const std::string name = layer.string("name");
    if (layer.string("type") == kHintLayer)
      layer.error("type", concat("type '", kHintLayer, "' is for loss.distill.hint of a recipe, which adds the layer"));
    if (!names.insert(name).second) layer.error("name", concat("there are two layers called '", name, "'"));
  }
  const auto layers = whole_layers(model);
  Names all;
  Shape batch = model.input.batch_of(1);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (const std::string twice = all.add(*layers[i], batch); !twice.empty())
      model.layers[i].error("name",
                            concat("the name '", twice, "' is there twice: the layers inside a layer are called ",
                                   "LAYER.NAME; rename one"));
    check_whitening(model, i, *layers[i]);
    batch = layers[i]->out_shape(batch);
    model.row_group = common_group(model.row_group, layers[i]->row_group());
  }
  if (batch.row_elements() != model.classes)
    config.error("classes", concat("the last layer '", layers.back()->name(), "' has ", batch.row_elements(),
                                   " outputs, but 'classes' is ", model.classes));
  return model;
}

std::unique_ptr<Layer> make_layer(const Model& model, size_t index, const Shape& in, std::optional<Slice> part,
                                  std::optional<Slice> inputs) {
  auto layer = make_layer(model.layers[index], in, part, inputs, types());
  for (Param* param : layer->params())
    if (names_layer(model.frozen, layer_of(*param))) param->freeze();
  if (!model.muon_except) return layer;
  for (Param* param : layer->params())
    param->is_matrix = param->role == ParamRole::kTrained && param->full_shape.rank() > 1 && !param->is_bias() &&
                       param->lr_mult > 0 && !names_layer(*model.muon_except, layer_of(*param));
  return layer;
}

size_t layer_number(const Model& model, const std::string& name) {
  std::vector<std::string> names;
  Shape batch = model.input.batch_of(1);
  for (const auto& layer : whole_layers(model)) {
    if (layer->name() == name) return names.size();
    if (holds(*layer, batch, name))
      fail("layer '", name, "' is inside '", layer->name(), "'; only the output of the whole layer can be taken: use '",
           layer->name(), "'");
    names.push_back(layer->name());
    batch = layer->out_shape(batch);
  }
  const std::string near = nearest(name, names);
  std::string list;
  for (const std::string& each : names) list += (list.empty() ? "" : " ") + each;
  fail("model '", model.name, "' has no layer '", name, "'", near.empty() ? "" : concat("; did you mean '", near, "'?"),
       " (layers: ", list, ")");
}

std::vector<std::unique_ptr<Layer>> whole_layers(const Model& model) {
  std::vector<std::unique_ptr<Layer>> layers;
  Shape batch = model.input.batch_of(1);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    layers.push_back(make_layer(model, i, batch.row()));
    batch = layers.back()->out_shape(batch);
  }
  return layers;
}

}  // namespace owt

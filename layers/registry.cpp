#include "layers/registry.h"

#include "layers/activation.h"
#include "layers/batch_norm.h"
#include "layers/conv.h"
#include "layers/cosine.h"
#include "layers/dense.h"
#include "layers/dropout.h"
#include "layers/layer_norm.h"
#include "layers/local.h"
#include "layers/lrn.h"
#include "layers/pool.h"
#include "layers/relu.h"
#include "src/system/check.h"
#include "src/system/printable.h"

namespace owt {
namespace {

// To add a layer, add a line.
// clang-format off
constexpr LayerType kTypes[] = {
    {"activation", make_activation},
    {"avg_pool", make_avg_pool},
    {"batch_norm", make_batch_norm},
    {"conv", make_conv},
    {"cosine", make_cosine},
    {"dense", make_dense},
    {"drop_path", make_drop_path},
    {"dropout", make_dropout},
    {"global_avg_pool", make_global_avg_pool},
    {"layer_norm", make_layer_norm},
    {"local", make_local},
    {"lrn", make_lrn},
    {"max_pool", make_max_pool},
    {"relu", make_relu},
};
// clang-format on

}  // namespace

std::span<const LayerType> layer_types() { return kTypes; }

std::unique_ptr<Layer> make_layer(const LayerSpec& spec, std::span<const LayerType> types) {
  Config& config = spec.config;
  config.string("name");
  config.call("[[layer]] " + spec.name);
  if (printable(spec.name) != spec.name) config.error("name", "a name holds no control characters");
  std::vector<std::string> known;
  for (const LayerType& type : types) known.push_back(type.type);
  const std::string wanted = config.word("type", known);
  for (const LayerType& type : types) {
    if (wanted != type.type) continue;
    std::unique_ptr<Layer> layer;
    try {
      layer = type.make(spec);
      const Shape row = spec.inputs ? Shape{spec.inputs->size()} : spec.in;
      // throws here for impossible geometry, so the error names the layer
      const Shape out = layer->out_shape(row.batch_of(1));
      if (out.elements() > kMostValues)
        fail("it would give ", out.elements(), " values for each image, more than any memory holds");
    } catch (const Error& e) {
      const std::string text = e.what();
      if (text.find(config.what()) != std::string::npos) throw;
      config.error("type", concat("cannot take input ", spec.in, ": ", text));
    }
    config.finish(wanted);
    return layer;
  }
  fail("layer type '", wanted, "' is not in the list");
}

std::unique_ptr<Layer> make_layer(Config config, const Shape& in, std::optional<Slice> part,
                                  std::optional<Slice> inputs, std::span<const LayerType> types) {
  const std::string name = config.string("name");
  return make_layer({name, config, in, part, inputs}, types);
}

}  // namespace owt

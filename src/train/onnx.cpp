#include "src/train/onnx.h"

#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <set>

#include "layers/batch_norm.h"
#include "layers/conv.h"
#include "layers/lrn.h"
#include "layers/pool.h"
#include "src/core/check.h"
#include "src/core/files.h"
#include "src/core/log.h"
#include "src/net/residual.h"
#include "src/train/data_facts.h"
#include "src/train/weights.h"

namespace owt {
namespace {

using Names = std::vector<std::string>;
using Integers = std::vector<int64_t>;

constexpr const char* kInput = "images";
constexpr const char* kLogits = "logits";
constexpr const char* kProbabilities = "probabilities";

struct Value {
  std::string name;
  Shape shape;  // of one image as it is here, N x H x W x C or N x F; in the file N x C x H x W
};

// The graph as it grows, and where its weights come from.
class OnnxGraph {
 public:
  OnnxGraph(onnx::GraphProto& graph, const std::string& weights)
      : graph_(graph), path_(weights), weights_(weights), names_{kInput, kLogits, kProbabilities} {}

  // Adds a node named like its layer and returns it, for its attributes.
  onnx::NodeProto& add(const std::string& type, const std::string& name, const Names& inputs) {
    onnx::NodeProto& node = *graph_.add_node();
    node.set_op_type(type);
    node.set_name(name);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(unused(name));
    return node;
  }

  std::string constant(const std::string& name, const Shape& shape, const float* values) {
    onnx::TensorProto& tensor = add_tensor(unused(name), shape, onnx::TensorProto::FLOAT);
    tensor.set_raw_data(values, static_cast<size_t>(shape.elements()) * sizeof(float));
    return tensor.name();
  }
  std::string constant(const std::string& name, const Integers& values) {
    onnx::TensorProto& tensor =
        add_tensor(unused(name), {static_cast<int64_t>(values.size())}, onnx::TensorProto::INT64);
    tensor.set_raw_data(values.data(), values.size() * sizeof(int64_t));
    return tensor.name();
  }

  // The layer's parameters, from the weights file: its order is ONNX's.
  Names params(Layer& layer) {
    Names names;
    for (const Param* param : layer.params()) {
      const Tensor tensor = read_parameter(weights_, path_, *param);
      taken_.insert(param->name);
      names.push_back(constant(param->name, tensor.shape(), tensor.data()));
    }
    return names;
  }
  void warn_of_unused() const {
    for (const std::string& name : unused_tensors(weights_, taken_))
      log_warn("{}: nothing in the model takes '{}'", path_, name);
  }

  // Makes what the last node gives the output of the graph.
  void set_output(const std::string& name) { graph_.mutable_node(graph_.node_size() - 1)->set_output(0, name); }

 private:
  onnx::TensorProto& add_tensor(const std::string& name, const Shape& shape, onnx::TensorProto::DataType type) {
    onnx::TensorProto& tensor = *graph_.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (int i = 0; i < shape.rank(); ++i) tensor.add_dims(shape[i]);
    return tensor;
  }
  std::string unused(std::string name) {
    while (!names_.insert(name).second) name += '_';
    return name;
  }

  onnx::GraphProto& graph_;
  std::string path_;
  SafetensorsReader weights_;
  std::set<std::string> names_, taken_;
};

onnx::AttributeProto& attribute(onnx::NodeProto& node, const std::string& name,
                                onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& made = *node.add_attribute();
  made.set_name(name);
  made.set_type(type);
  return made;
}
void set(onnx::NodeProto& node, const std::string& name, int64_t value) {
  attribute(node, name, onnx::AttributeProto::INT).set_i(value);
}
void set(onnx::NodeProto& node, const std::string& name, float value) {
  attribute(node, name, onnx::AttributeProto::FLOAT).set_f(value);
}
void set(onnx::NodeProto& node, const std::string& name, const Integers& values) {
  onnx::AttributeProto& made = attribute(node, name, onnx::AttributeProto::INTS);
  for (const int64_t value : values) made.add_ints(value);
}

// N x C x H x W or N x F.
Integers dims_in_file(const Shape& shape) {
  if (shape.rank() == 4) return {shape[0], shape[3], shape[1], shape[2]};
  return {shape[0], shape[1]};
}

Names with(const Value& x, const Names& params) {
  Names names{x.name};
  names.insert(names.end(), params.begin(), params.end());
  return names;
}

std::string flat(OnnxGraph& graph, const std::string& name, const Value& x) {
  if (x.shape.rank() == 2) return x.name;
  onnx::NodeProto& node = graph.add("Flatten", name, {x.name});
  set(node, "axis", int64_t{1});
  return node.output(0);
}

Value add_layers(OnnxGraph& graph, const Net& net, Value x);

// Each adds the layer's nodes and returns the name of what they give.

std::string add_conv(OnnxGraph& graph, Layer& layer, const Value& x) {
  const ConvGeometry g = conv_geometry(layer, x.shape).value();
  onnx::NodeProto& node = graph.add("Conv", layer.name(), with(x, graph.params(layer)));
  set(node, "kernel_shape", Integers{g.kernel_h, g.kernel_w});
  set(node, "strides", Integers{g.stride_h, g.stride_w});
  set(node, "pads", Integers{g.top, g.left, g.bottom, g.right});
  set(node, "group", g.groups);
  return node.output(0);
}

std::string add_dense(OnnxGraph& graph, Layer& layer, const Value& x) {
  const std::string rows = flat(graph, layer.name() + ".flatten", x);
  onnx::NodeProto& node = graph.add("Gemm", layer.name(), with({rows, {}}, graph.params(layer)));
  set(node, "transB", int64_t{1});
  return node.output(0);
}

// Positions beyond an extent of `in` (its padding before included) that the last window needs.
int64_t beyond(const Window& window, int64_t in, int64_t out) {
  return std::max<int64_t>(0, (out - 1) * window.stride + window.kernel - in);
}

void set_windows(onnx::NodeProto& node, const Window& window, const Integers& pads) {
  set(node, "kernel_shape", Integers{window.kernel, window.kernel});
  set(node, "strides", Integers{window.stride, window.stride});
  set(node, "pads", pads);
}

std::string add_max_pool(OnnxGraph& graph, Layer& layer, const Value& x) {
  const Window& window = pool_window(layer);
  const Shape out = layer.out_shape(x.shape);
  onnx::NodeProto& node = graph.add("MaxPool", layer.name(), {x.name});
  set_windows(node, window,
              {window.pad, window.pad, beyond(window, x.shape[1] + window.pad, out[1]),
               beyond(window, x.shape[2] + window.pad, out[2])});
  return node.output(0);
}

// Padding counts in the mean and what lies beyond it does not: the first is made part of the image.
std::string add_avg_pool(OnnxGraph& graph, Layer& layer, const Value& x) {
  const Window& window = pool_window(layer);
  const Shape out = layer.out_shape(x.shape);
  std::string image = x.name;
  if (window.pad > 0) {
    const int64_t p = window.pad;
    const std::string pads = graph.constant(layer.name() + ".pads", {0, 0, p, p, 0, 0, p, p});
    image = graph.add("Pad", layer.name() + ".padded", {x.name, pads}).output(0);
  }
  onnx::NodeProto& node = graph.add("AveragePool", layer.name(), {image});
  set_windows(
      node, window,
      {0, 0, beyond(window, x.shape[1] + 2 * window.pad, out[1]), beyond(window, x.shape[2] + 2 * window.pad, out[2])});
  set(node, "count_include_pad", int64_t{0});
  return node.output(0);
}

std::string add_global_avg_pool(OnnxGraph& graph, Layer& layer, const Value& x) {
  const std::string means = graph.add("GlobalAveragePool", layer.name() + ".means", {x.name}).output(0);
  return flat(graph, layer.name(), {means, x.shape});
}

std::string add_lrn(OnnxGraph& graph, Layer& layer, const Value& x) {
  const LrnSettings& settings = lrn_settings(layer);
  if (settings.size % 2 == 0)
    fail("layer '", layer.name(), "' normalises over ", settings.size,
         " channels; ONNX's LRN knows odd sizes only, so this model cannot be exported");
  onnx::NodeProto& node = graph.add("LRN", layer.name(), {x.name});
  set(node, "size", settings.size);
  set(node, "alpha", settings.alpha);
  set(node, "beta", settings.beta);
  set(node, "bias", settings.k);
  return node.output(0);
}

std::string add_batch_norm(OnnxGraph& graph, Layer& layer, const Value& x) {
  onnx::NodeProto& node = graph.add("BatchNormalization", layer.name(), with(x, graph.params(layer)));
  set(node, "epsilon", static_cast<float>(batch_norm_eps(layer)));
  return node.output(0);
}

std::string add_relu(OnnxGraph& graph, Layer& layer, const Value& x) {
  return graph.add("Relu", layer.name(), {x.name}).output(0);
}

std::string add_residual(OnnxGraph& graph, Layer& layer, const Value& x) {
  const ResidualParts parts = residual_parts(layer);
  const std::string body = add_layers(graph, parts.body, x).name, shortcut = add_layers(graph, parts.shortcut, x).name;
  const std::string sum =
      graph.add("Add", parts.relu ? layer.name() + ".sum" : layer.name(), {body, shortcut}).output(0);
  return parts.relu ? graph.add("Relu", layer.name(), {sum}).output(0) : sum;
}

std::string skip(OnnxGraph&, Layer&, const Value& x) { return x.name; }

struct Operator {
  const char* type;  // of the layer
  std::string (*add)(OnnxGraph&, Layer&, const Value& x);
};

constexpr Operator kOperators[] = {
    {"avg_pool", add_avg_pool}, {"batch_norm", add_batch_norm},
    {"conv", add_conv},         {"dense", add_dense},
    {"dropout", skip},          {"global_avg_pool", add_global_avg_pool},
    {"lrn", add_lrn},           {"max_pool", add_max_pool},
    {"relu", add_relu},         {"residual", add_residual},
};

Value add_layer(OnnxGraph& graph, Layer& layer, const Value& x) {
  for (const Operator& op : kOperators)
    if (layer.type() == op.type) return {op.add(graph, layer, x), layer.out_shape(x.shape)};
  fail("layer '", layer.name(), "' is of type ", layer.type(), ", which owt cannot write as ONNX");
}

Value add_layers(OnnxGraph& graph, const Net& net, Value x) {
  for (int64_t i = 0; i < net.size(); ++i) x = add_layer(graph, net.layer(i), x);
  return x;
}

// Values of H x W x C as 1 x C x H x W, or as 1 x C x 1 x 1 where every position of a channel has the same.
std::string add_per_pixel(OnnxGraph& graph, const std::string& name, const Shape& image,
                          const std::vector<float>& values) {
  const int64_t positions = image[0] * image[1], channels = image[2];
  const auto at = [&](int64_t i) { return values[static_cast<size_t>(i)]; };
  std::vector<float> planes;
  bool constant = true;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t p = 0; p < positions; ++p) {
      planes.push_back(at(p * channels + c));
      constant &= at(p * channels + c) == at(c);
    }
  if (!constant) return graph.constant(name, {1, channels, image[0], image[1]}, planes.data());
  return graph.constant(name, {1, channels, 1, 1}, values.data());
}

Value add_normalisation(OnnxGraph& graph, const Augmenter& augmenter, const Value& pixels) {
  const auto [mean, factor] = augmenter.at_centre();
  const Shape image = pixels.shape.row();
  const std::string means = add_per_pixel(graph, "pixel.mean", image, mean);
  const std::string centred = graph.add("Sub", "centred", {pixels.name, means}).output(0);
  const std::string factors = add_per_pixel(graph, "pixel.factor", image, factor);
  return {graph.add("Mul", "normalised", {centred, factors}).output(0), pixels.shape};
}

void declare(onnx::ValueInfoProto& value, const std::string& name, const Shape& shape, int64_t batch) {
  value.set_name(name);
  onnx::TypeProto::Tensor& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  const Integers dims = dims_in_file(shape);
  onnx::TensorShapeProto::Dimension& rows = *type.mutable_shape()->add_dim();
  if (batch > 0)
    rows.set_dim_value(batch);
  else
    rows.set_dim_param("N");
  for (size_t i = 1; i < dims.size(); ++i) type.mutable_shape()->add_dim()->set_dim_value(dims[i]);
}

void add_graph(onnx::GraphProto& out, const Model& model, const Augmenter& augmenter, const std::string& weights,
               const OnnxOptions& options) {
  OnnxGraph graph(out, weights);
  out.set_name(model.name);
  Value x{kInput, model.input.batch_of(1)};
  declare(*out.add_input(), x.name, x.shape, options.batch);
  if (options.raw_pixels) x = add_normalisation(graph, augmenter, x);
  x = add_layers(graph, Net(whole_layers(model), model.input), x);
  x.name = flat(graph, "flatten", x);
  if (x.name == kInput) graph.add("Identity", kLogits, {x.name});
  graph.set_output(kLogits);
  if (options.softmax) {
    set(graph.add("Softmax", kProbabilities, {kLogits}), "axis", int64_t{1});
    graph.set_output(kProbabilities);
  }
  const Shape scores{1, model.classes};
  declare(*out.add_output(), options.softmax ? kProbabilities : kLogits, scores, options.batch);
  graph.warn_of_unused();
}

std::string listed(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += format("{}{}", text.empty() ? "" : " ", value);
  return text;
}

// Means or stds, as far as they can be listed.
std::string described(AugmentSettings::From from, const std::vector<double>& values,
                      const std::vector<double>& of_channels, const char* none) {
  if (from == AugmentSettings::From::kNone) return none;
  if (from == AugmentSettings::From::kPixel) return "of each pixel and channel of the training images";
  return listed(from == AugmentSettings::From::kChannel ? of_channels : values);
}

std::string lines(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "\n") + name;
  return text;
}

void add_metadata(onnx::ModelProto& model, const Settings& settings, const DataFacts& facts, bool raw_pixels) {
  const auto add = [&](const std::string& key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("owt.recipe", settings.name);
  add("owt.channels", "RGB");
  if (!facts.class_names.empty()) add("owt.classes", lines(facts.class_names));
  if (raw_pixels) return add("owt.input", "pixels 0 to 255");
  const AugmentSettings& augment = settings.data.augment;
  add("owt.input", "(pixel - mean) * scale / std, pixels 0 to 255");
  add("owt.mean", described(augment.mean, augment.mean_values, facts.statistics.channel_mean, "0"));
  add("owt.std", described(augment.std, augment.std_values, facts.statistics.channel_std, "1"));
  add("owt.scale", format("{}", augment.scale));
}

// Of the first release of ONNX with that opset (docs/Versioning.md), so that old readers take the file.
int64_t ir_version(int opset) { return opset <= 11 ? 6 : opset <= 14 ? 7 : 8; }

void write(const onnx::ModelProto& model, const std::string& file) {
  if (model.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail("the model takes ", model.ByteSizeLong(), " bytes; an ONNX file holds 2 GB at most");
  write_file_atomically(file, model.SerializeAsString());
}

}  // namespace

void export_onnx(const Settings& settings, const std::string& weights, const OnnxOptions& options,
                 const std::string& file) {
  OWT_CHECK(kFirstOpset <= options.opset && options.opset <= kLastOpset, "opset ", options.opset);
  onnx::ModelProto model;
  model.set_ir_version(ir_version(options.opset));
  model.set_producer_name("owt");
  model.add_opset_import()->set_version(options.opset);
  const DataFacts facts = find_data_facts(settings, options.run_folder, options.data);
  add_metadata(model, settings, facts, options.raw_pixels);
  const Augmenter augmenter(settings.data.augment, settings.data.image, facts.statistics);
  add_graph(*model.mutable_graph(), settings.model, augmenter, weights, options);
  onnx::checker::check_model(model);
  write(model, file);
}

}  // namespace owt

#include "src/train/commands/onnx.h"

#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <set>

#include "src/core/check.h"
#include "src/core/files.h"
#include "src/core/log.h"
#include "src/net/composite.h"
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

  std::string constant(const std::string& name, float value) {
    onnx::TensorProto& tensor = add_tensor(unused(name), {}, onnx::TensorProto::FLOAT);
    tensor.set_raw_data(&value, sizeof value);
    return tensor.name();
  }

  // A parameter from the weights file, whose order is ONNX's; as a constant of this shape.
  std::string param(const Param& param, const Shape& shape) {
    const Tensor tensor = read_parameter(weights_, path_, param);
    taken_.insert(param.name);
    return constant(param.name, shape, tensor.data());
  }
  // The same in another order: the value at i is the parameter's at from(i).
  template <class From>
  std::string param(const Param& param, const Shape& shape, const From& from) {
    const Tensor tensor = read_parameter(weights_, path_, param);
    taken_.insert(param.name);
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.data()[from(static_cast<int64_t>(i))];
    return constant(param.name, shape, values.data());
  }
  Names params(const std::vector<Param*>& params) {
    Names names;
    for (const Param* each : params) names.push_back(param(*each, each->file_shape));
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
void set(onnx::NodeProto& node, const std::string& name, double value) {
  attribute(node, name, onnx::AttributeProto::FLOAT).set_f(static_cast<float>(value));
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

std::string flat(OnnxGraph& graph, const std::string& name, const Value& x) {
  if (x.shape.rank() == 2) return x.name;
  onnx::NodeProto& node = graph.add("Flatten", name, {x.name});
  set(node, "axis", int64_t{1});
  return node.output(0);
}

// How an operator of a description is called in ONNX.
struct Operator {
  const char *ours, *theirs;
  bool takes_rows = false, gives_images = false;  // where ours takes images as well, or gives rows
  const char* constant = nullptr;                 // an attribute that is always the same
  int64_t value = 0;
};
constexpr Operator kOperators[] = {
    {"abs", "Abs"},
    {"avg_pool", "AveragePool", false, false, "count_include_pad", 0},
    {"batch_norm", "BatchNormalization"},
    {"conv", "Conv"},
    {"dense", "Gemm", true, false, "transB", 1},
    {"global_avg_pool", "GlobalAveragePool", false, true},
    {"leaky", "LeakyRelu"},
    {"lrn", "LRN"},
    {"max_pool", "MaxPool"},
    {"relu", "Relu"},
    {"sigmoid", "Sigmoid"},
    {"softplus", "Softplus"},
    {"tanh", "Tanh"},
};

// How an attribute of a description is called in ONNX; "": it is a matter of training, or of the nodes around.
constexpr std::pair<const char*, const char*> kAttributes[] = {
    {"kernel", "kernel_shape"}, {"stride", "strides"}, {"pad", "pads"},
    {"groups", "group"},        {"eps", "epsilon"},    {"size", "size"},
    {"alpha", "alpha"},         {"beta", "beta"},      {"k", "bias"},
    {"momentum", ""},           {"zeros", ""},         {"slope", "alpha"},
};

void set_attributes(onnx::NodeProto& node, const Described& described) {
  for (const auto& [name, value] : described.attributes) {
    const auto same = [&, &ours = name](const auto& known) { return known.first == ours; };
    const auto* known = std::find_if(std::begin(kAttributes), std::end(kAttributes), same);
    OWT_CHECK(known != std::end(kAttributes), "'", name, "' of ", described.op, " has no name in ONNX");
    if (*known->second) std::visit([&](const auto& given) { set(node, known->second, given); }, value);
  }
}

// The image with the zeros around it that count.
std::string with_zeros(OnnxGraph& graph, const std::string& layer, const Described& described, const std::string& x) {
  for (const auto& [name, value] : described.attributes) {
    if (name != "zeros") continue;
    const Integers& z = std::get<Integers>(value);
    if (std::all_of(z.begin(), z.end(), [](int64_t zeros) { return zeros == 0; })) return x;
    const std::string pads = graph.constant(layer + ".pads", {0, 0, z[0], z[1], 0, 0, z[2], z[3]});
    return graph.add("Pad", layer + ".padded", {x, pads}).output(0);
  }
  return x;
}

void check_lrn(const Layer& layer, const Described& described) {
  if (described.op != "lrn" || described.integer("size") % 2 == 1) return;
  fail("layer '", layer.name(), "' normalises over ", described.integer("size"),
       " channels; ONNX's LRN knows odd sizes only, so this model cannot be exported");
}

std::string add_operator(OnnxGraph& graph, const Operator& op, const Layer& layer, const Described& described,
                         const Value& x) {
  check_lrn(layer, described);
  Names inputs{op.takes_rows ? flat(graph, layer.name() + ".flatten", x)
                             : with_zeros(graph, layer.name(), described, x.name)};
  for (const std::string& param : graph.params(described.params)) inputs.push_back(param);
  onnx::NodeProto& node = graph.add(op.theirs, op.gives_images ? layer.name() + ".means" : layer.name(), inputs);
  set_attributes(node, described);
  if (op.constant) set(node, op.constant, op.value);
  return op.gives_images ? flat(graph, layer.name(), {node.output(0), x.shape}) : node.output(0);
}

Value add_layer(OnnxGraph& graph, Layer& layer, const Value& x);

Value add_layers(OnnxGraph& graph, const Net& net, Value x) {
  for (int64_t i = 0; i < net.size(); ++i) x = add_layer(graph, net.layer(i), x);
  return x;
}

// What the branches of a composite layer give. A branch without layers gives x.
Names add_composite_branches(OnnxGraph& graph, const Layer& layer, const Value& x) {
  Names outputs;
  for (const Net& branch : dynamic_cast<const Composite&>(layer).branches())
    outputs.push_back(add_layers(graph, branch, x).name);
  return outputs;
}

std::string add_residual(OnnxGraph& graph, Layer& layer, const Described& described, const Value& x) {
  const bool relu = described.integer("relu") == 1;
  const Names outputs = add_composite_branches(graph, layer, x);
  const std::string sum = graph.add("Add", relu ? layer.name() + ".sum" : layer.name(), outputs).output(0);
  return relu ? graph.add("Relu", layer.name(), {sum}).output(0) : sum;
}

// Channels stand second in ONNX's images, as features do.
std::string add_branches_side_by_side(OnnxGraph& graph, Layer& layer, const Described&, const Value& x) {
  onnx::NodeProto& node = graph.add("Concat", layer.name(), add_composite_branches(graph, layer, x));
  set(node, "axis", int64_t{1});
  return node.output(0);
}

std::string add_nothing(OnnxGraph&, Layer&, const Described&, const Value& x) { return x.name; }

std::string add_square(OnnxGraph& graph, Layer& layer, const Described&, const Value& x) {
  return graph.add("Mul", layer.name(), {x.name, x.name}).output(0);
}

std::string add_silu(OnnxGraph& graph, Layer& layer, const Described&, const Value& x) {
  const std::string gate = graph.add("Sigmoid", layer.name() + ".gate", {x.name}).output(0);
  return graph.add("Mul", layer.name(), {x.name, gate}).output(0);
}

// An operator of two operands, of which the second is a number.
std::string with_number(OnnxGraph& graph, const char* type, const std::string& name, const std::string& x,
                        float number) {
  return graph.add(type, name, {x, graph.constant(name + ".by", number)}).output(0);
}

// What is above 6, taken off: not every reader takes a Clip with its bounds as inputs, as from operator set 11 on.
std::string add_relu6(OnnxGraph& graph, Layer& layer, const Described&, const Value& x) {
  const std::string of = layer.name() + ".";
  const std::string over = with_number(graph, "Sub", of + "less", x.name, 6);
  const std::string above = graph.add("Relu", of + "above", {over}).output(0);
  return graph.add("Sub", layer.name(), {graph.add("Relu", of + "positive", {x.name}).output(0), above}).output(0);
}

// ONNX has Gelu from operator set 20 on.
std::string add_gelu(OnnxGraph& graph, Layer& layer, const Described& described, const Value& x) {
  const std::string of = layer.name() + ".";
  if (described.integer("by_tanh") == 1) {
    const std::string square = graph.add("Mul", of + "square", {x.name, x.name}).output(0);
    const std::string factor =
        with_number(graph, "Add", of + "factor", with_number(graph, "Mul", of + "cubic", square, 0.044715f), 1);
    const std::string inner = graph.add("Mul", of + "inner", {x.name, factor}).output(0);
    const std::string scaled = with_number(graph, "Mul", of + "scaled", inner, 1.59576912f);
    const std::string gate = graph.add("Sigmoid", of + "gate", {scaled}).output(0);
    return graph.add("Mul", layer.name(), {x.name, gate}).output(0);
  }
  const std::string scaled = with_number(graph, "Mul", of + "scaled", x.name, 0.70710678f);
  const std::string gate = with_number(graph, "Add", of + "gate", graph.add("Erf", of + "erf", {scaled}).output(0), 1);
  const std::string twice = graph.add("Mul", of + "twice", {x.name, gate}).output(0);
  return with_number(graph, "Mul", layer.name(), twice, 0.5f);
}

// The mean of the squares in a window, at the borders over its whole area, as lrn.h divides.
std::string add_lrn_within(OnnxGraph& graph, Layer& layer, const Described& described, const Value& x) {
  const std::string of = layer.name() + ".";
  const int64_t size = described.integer("size"), before = size / 2, after = (size - 1) / 2;
  const std::string squares = graph.add("Mul", of + "squares", {x.name, x.name}).output(0);
  const std::string pads = graph.constant(of + "pads", {0, 0, before, before, 0, 0, after, after});
  onnx::NodeProto& pool =
      graph.add("AveragePool", of + "mean", {graph.add("Pad", of + "padded", {squares, pads}).output(0)});
  set(pool, "kernel_shape", Integers{size, size});
  const auto number = [&](const char* name) { return static_cast<float>(described.number(name)); };
  const std::string scaled = with_number(graph, "Mul", of + "scaled", pool.output(0), number("alpha"));
  const std::string sum = with_number(graph, "Add", of + "sum", scaled, number("k"));
  return graph.add("Mul", layer.name(), {x.name, with_number(graph, "Pow", of + "power", sum, -number("beta"))})
      .output(0);
}

// N x (channel, place in the window) x OH x OW: a convolution whose filters take a pixel each.
std::string add_windows(OnnxGraph& graph, const std::string& of, const Described& described, const Value& x) {
  const Integers& kernel = described.integers("kernel");
  const int64_t area = kernel[0] * kernel[1], filters = x.shape[3] * area;
  std::vector<float> filter(static_cast<size_t>(filters * area));
  for (int64_t i = 0; i < filters; ++i) filter[static_cast<size_t>(i * area + i % area)] = 1;
  const std::string weight = graph.constant(of + "pixels", {filters, 1, kernel[0], kernel[1]}, filter.data());
  onnx::NodeProto& node = graph.add("Conv", of + "windows", {x.name, weight});
  set_attributes(node, described);
  set(node, "group", x.shape[3]);
  return node.output(0);
}

std::string transposed(OnnxGraph& graph, const std::string& name, const std::string& x, const Integers& axes) {
  onnx::NodeProto& node = graph.add("Transpose", name, {x});
  set(node, "perm", axes);
  return node.output(0);
}

std::string reshaped(OnnxGraph& graph, const std::string& name, const std::string& x, const Integers& shape) {
  return graph.add("Reshape", name, {x, graph.constant(name + ".shape", shape)}).output(0);
}

// The windows of all positions one behind the other are the channels of one pixel, of which each position is a group:
// operators that every reader has.
std::string add_local(OnnxGraph& graph, Layer& layer, const Described& described, const Value& x) {
  const std::string of = layer.name() + ".";
  const Shape out = layer.out_shape(x.shape);
  const int64_t positions = out[1] * out[2], filters = out[3], channels = x.shape[3];
  const int64_t window = described.params[0]->full_shape[2], area = window / channels;
  const std::string windows = transposed(graph, of + "positions", add_windows(graph, of, described, x), {0, 2, 3, 1});
  Names inputs{reshaped(graph, of + "groups", windows, {0, -1, 1, 1})};
  inputs.push_back(graph.param(*described.params[0], {positions * filters, window, 1, 1}, [=](int64_t i) {
    const int64_t at = i % window, filter = i / window % filters, position = i / window / filters;
    return (filter * positions + position) * window + at % area * channels + at / area;
  }));
  if (described.params.size() > 1)
    inputs.push_back(graph.param(*described.params[1], {positions * filters},
                                 [=](int64_t i) { return i % filters * positions + i / filters; }));
  onnx::NodeProto& node = graph.add("Conv", of + "sums", inputs);
  set(node, "kernel_shape", Integers{1, 1});
  set(node, "group", positions);
  const std::string image = reshaped(graph, of + "image", node.output(0), {0, out[1], out[2], filters});
  return transposed(graph, layer.name(), image, {0, 3, 1, 2});
}

// Slopes lie beside the channels of N x C x H x W.
std::string add_prelu(OnnxGraph& graph, Layer& layer, const Described& described, const Value& x) {
  const Param& weight = *described.params.at(0);
  const int64_t slopes = weight.full_shape.elements();
  const Shape shape = x.shape.rank() == 4 ? Shape{slopes, 1, 1} : Shape{slopes};
  return graph.add("PRelu", layer.name(), {x.name, graph.param(weight, shape)}).output(0);
}

// What is written otherwise than as one operator of ONNX.
struct Special {
  const char* op;
  std::string (*add)(OnnxGraph& graph, Layer& layer, const Described& described, const Value& x);
};
constexpr Special kSpecials[] = {{"branches", add_branches_side_by_side},
                                 {"dropout", add_nothing},
                                 {"gelu", add_gelu},
                                 {"local", add_local},
                                 {"lrn_within", add_lrn_within},
                                 {"prelu", add_prelu},
                                 {"relu6", add_relu6},
                                 {"residual", add_residual},
                                 {"silu", add_silu},
                                 {"square", add_square}};

// The name of what the layer gives.
std::string add_described(OnnxGraph& graph, Layer& layer, const Described& described, const Value& x) {
  for (const Special& special : kSpecials)
    if (described.op == special.op) return special.add(graph, layer, described, x);
  for (const Operator& op : kOperators)
    if (described.op == op.ours) return add_operator(graph, op, layer, described, x);
  fail("layer '", layer.name(), "' is of type ", layer.type(), ", which owt cannot write as ONNX");
}

Value add_layer(OnnxGraph& graph, Layer& layer, const Value& x) {
  return {add_described(graph, layer, layer.describe(x.shape), x), layer.out_shape(x.shape)};
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
               LossType loss, const OnnxOptions& options) {
  OnnxGraph graph(out, weights);
  out.set_name(model.name);
  Value x{kInput, model.input.batch_of(1)};
  declare(*out.add_input(), x.name, x.shape, options.batch);
  if (options.raw_pixels) x = add_normalisation(graph, augmenter, x);
  x = add_layers(graph, Net(whole_layers(model), model.input), x);
  x.name = flat(graph, "flatten", x);
  if (x.name == kInput) graph.add("Identity", kLogits, {x.name});
  graph.set_output(kLogits);
  if (options.probabilities) {
    if (loss == LossType::kLogistic)
      graph.add("Sigmoid", kProbabilities, {kLogits});
    else
      set(graph.add("Softmax", kProbabilities, {kLogits}), "axis", int64_t{1});
    graph.set_output(kProbabilities);
  }
  const Shape scores{1, model.classes};
  declare(*out.add_output(), options.probabilities ? kProbabilities : kLogits, scores, options.batch);
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

// The IR version of the first release of ONNX with that opset (its docs/Versioning.md), so that old readers take the
// file.
int64_t ir_version(int opset) { return opset <= 11 ? 6 : opset <= 14 ? 7 : 8; }

void write(const onnx::ModelProto& model, const std::string& file) {
  if (model.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail("the model takes ", model.ByteSizeLong(), " bytes; an ONNX file holds 2 GB at most");
  write_file_atomically(file, model.SerializeAsString());
}

}  // namespace

std::vector<std::string> onnx_layer_types() {
  std::vector<std::string> types;
  for (const Special& special : kSpecials) types.emplace_back(special.op);
  for (const Operator& op : kOperators) types.emplace_back(op.ours);
  return types;
}

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
  add_graph(*model.mutable_graph(), settings.model, augmenter, weights, settings.loss.type, options);
  onnx::checker::check_model(model);
  write(model, file);
}

}  // namespace owt

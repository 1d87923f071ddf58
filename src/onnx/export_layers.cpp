#include "src/onnx/export_layers.h"

#include <algorithm>
#include <optional>

#include "layers/cosine.h"
#include "src/net/composite.h"
#include "src/onnx/export.h"
#include "src/system/check.h"

namespace owt {
namespace {

using Names = OnnxGraph::Names;
using Integers = OnnxGraph::Integers;

// The ONNX name of an operator in a description.
struct Operator {
  const char *ours, *theirs;
  bool takes_rows = false, gives_images = false;  // it accepts images too; it returns rows
  const char* constant = nullptr;                 // an attribute with a fixed value
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

// The ONNX name of an attribute in a description; "": training only, or expressed by other nodes.
constexpr std::pair<const char*, const char*> kAttributes[] = {
    {"kernel", "kernel_shape"}, {"stride", "strides"}, {"pad", "pads"},
    {"groups", "group"},        {"eps", "epsilon"},    {"size", "size"},
    {"alpha", "alpha"},         {"beta", "beta"},      {"k", "bias"},
    {"momentum", ""},           {"zeros", ""},         {"slope", "alpha"},
    {"dilation", "dilations"},
};

void set_attributes(onnx::NodeProto& node, const Described& described) {
  for (const auto& [name, value] : described.attributes) {
    const auto same = [&, &ours = name](const auto& known) { return known.first == ours; };
    const auto* known = std::find_if(std::begin(kAttributes), std::end(kAttributes), same);
    OWT_CHECK(known != std::end(kAttributes), "'", name, "' of ", described.op, " has no name in ONNX");
    if (*known->second) std::visit([&](const auto& given) { set_attribute(node, known->second, given); }, value);
  }
}

// Adds the zeros around the image that count.
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

// A batch normalisation that the weights of a layer before it include.
struct Folded {
  int64_t layer;  // in its net
  ChannelScaling scaling;
  std::string bias;  // the name of its bias
};

// The one after this layer, or after a max pool that follows it. A max pool keeps the order of values, unless a factor
// is negative.
std::optional<Folded> foldable(OnnxGraph& graph, const Net& net, int64_t layer, Shape x) {
  const auto described = [&](int64_t i) { return net.layer(i).describe(x); };
  const std::string op = described(layer).op;
  if (op != "conv" && op != "dense") return {};
  const auto next = [&] {
    x = net.layer(layer).out_shape(x);
    return ++layer < net.size();
  };
  if (!next()) return {};
  const bool pooled = described(layer).op == "max_pool";
  if (pooled && !next()) return {};
  const Described norm = described(layer);
  if (norm.op != "batch_norm") return {};
  ChannelScaling scaling = graph.normalisation(norm);
  const auto negative = [](double factor) { return factor < 0; };
  if (pooled && std::any_of(scaling.factor.begin(), scaling.factor.end(), negative)) return {};
  return Folded{layer, std::move(scaling), norm.params.at(1)->name};
}

void check_lrn(const Layer& layer, const Described& described) {
  if (described.op != "lrn" || described.integer("size") % 2 == 1) return;
  fail("layer '", layer.name(), "' normalises over ", described.integer("size"),
       " channels; ONNX's LRN knows odd sizes only, so this model cannot be exported");
}

std::string add_operator(OnnxGraph& graph, const Operator& op, const Layer& layer, const Described& described,
                         const OnnxValue& x, const Folded* folded) {
  check_lrn(layer, described);
  Names inputs{op.takes_rows ? graph.flat(layer.name() + ".flatten", x)
                             : with_zeros(graph, layer.name(), described, x.name)};
  const Names params =
      folded ? graph.scaled_params(described.params, folded->scaling, folded->bias) : graph.params(described.params);
  inputs.insert(inputs.end(), params.begin(), params.end());
  onnx::NodeProto& node = graph.add(op.theirs, op.gives_images ? layer.name() + ".means" : layer.name(), inputs);
  set_attributes(node, described);
  if (op.constant) set_attribute(node, op.constant, op.value);
  return op.gives_images ? graph.flat(layer.name(), {node.output(0), x.shape}) : node.output(0);
}

// The outputs of the branches of a composite layer; a branch without layers gives x.
Names add_composite_branches(OnnxGraph& graph, const Layer& layer, const OnnxValue& x) {
  Names outputs;
  for (const Net& branch : dynamic_cast<const Composite&>(layer).branches())
    outputs.push_back(add_layers(graph, branch, x).name);
  return outputs;
}

std::string add_residual(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x) {
  const bool relu = described.integer("relu") == 1;
  const Names outputs = add_composite_branches(graph, layer, x);
  const std::string sum = graph.add("Add", relu ? layer.name() + ".sum" : layer.name(), outputs).output(0);
  return relu ? graph.add("Relu", layer.name(), {sum}).output(0) : sum;
}

// The channels of ONNX images are dimension 1, as are features.
std::string add_branches_side_by_side(OnnxGraph& graph, Layer& layer, const Described&, const OnnxValue& x) {
  onnx::NodeProto& node = graph.add("Concat", layer.name(), add_composite_branches(graph, layer, x));
  set_attribute(node, "axis", int64_t{1});
  return node.output(0);
}

std::string transposed(OnnxGraph& graph, const std::string& name, const std::string& x, const Integers& axes) {
  onnx::NodeProto& node = graph.add("Transpose", name, {x});
  set_attribute(node, "perm", axes);
  return node.output(0);
}

std::string reshaped(OnnxGraph& graph, const std::string& name, const std::string& x, const Integers& shape) {
  return graph.add("Reshape", name, {x, graph.constant(name + ".shape", shape)}).output(0);
}

// The factors broadcast over N x C x H x W. The Reshape also keeps OpenCV 4.6 from taking the product of a value and a
// HardSigmoid of another one for a HardSwish.
std::string add_scale(OnnxGraph& graph, Layer& layer, const Described&, const OnnxValue& x) {
  const OnnxValue factors = add_layers(graph, dynamic_cast<const Composite&>(layer).branches()[0], x);
  const int64_t count = factors.shape.row_elements();
  const Integers shape = x.shape.rank() == 4 ? Integers{0, count, 1, 1} : Integers{0, count};
  return graph.add("Mul", layer.name(), {x.name, reshaped(graph, layer.name() + ".factors", factors.name, shape)})
      .output(0);
}

std::string add_nothing(OnnxGraph&, Layer&, const Described&, const OnnxValue& x) { return x.name; }

std::string add_square(OnnxGraph& graph, Layer& layer, const Described&, const OnnxValue& x) {
  return graph.add("Mul", layer.name(), {x.name, x.name}).output(0);
}

std::string add_silu(OnnxGraph& graph, Layer& layer, const Described&, const OnnxValue& x) {
  const std::string gate = graph.add("Sigmoid", layer.name() + ".gate", {x.name}).output(0);
  return graph.add("Mul", layer.name(), {x.name, gate}).output(0);
}

std::string add_hard_sigmoid(OnnxGraph& graph, const std::string& name, const std::string& x) {
  onnx::NodeProto& node = graph.add("HardSigmoid", name, {x});
  set_attribute(node, "alpha", 1.0 / 6);
  set_attribute(node, "beta", 0.5);
  return node.output(0);
}

std::string add_hard_sigmoid(OnnxGraph& graph, Layer& layer, const Described&, const OnnxValue& x) {
  return add_hard_sigmoid(graph, layer.name(), x.name);
}

// ONNX has HardSwish only in operator set 14 and later.
std::string add_hard_swish(OnnxGraph& graph, Layer& layer, const Described&, const OnnxValue& x) {
  const std::string gate = add_hard_sigmoid(graph, layer.name() + ".gate", x.name);
  return graph.add("Mul", layer.name(), {x.name, gate}).output(0);
}

// An operator with a number as its second operand.
std::string with_number(OnnxGraph& graph, const char* type, const std::string& name, const std::string& x,
                        float number) {
  return graph.add(type, name, {x, graph.constant(name + ".by", number)}).output(0);
}

// Subtracts the part above 6: not every reader accepts a Clip with its bounds as inputs, as in operator set 11 and
// later. If outputs are clipped to their range, which ends at 6 or below, a relu suffices.
std::string add_relu6(OnnxGraph& graph, Layer& layer, const Described&, const OnnxValue& x) {
  if (graph.clips()) return graph.add("Relu", layer.name(), {x.name}).output(0);
  const std::string of = layer.name() + ".";
  const std::string over = with_number(graph, "Sub", of + "less", x.name, 6);
  const std::string above = graph.add("Relu", of + "above", {over}).output(0);
  return graph.add("Sub", layer.name(), {graph.add("Relu", of + "positive", {x.name}).output(0), above}).output(0);
}

// ONNX has Gelu only in operator set 20 and later.
std::string add_gelu(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x) {
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
  // The operators of PyTorch's exporter, which onnxruntime replaces by a kernel of its own.
  const std::string scaled = with_number(graph, "Div", of + "scaled", x.name, 1.41421356f);
  const std::string gate = with_number(graph, "Add", of + "gate", graph.add("Erf", of + "erf", {scaled}).output(0), 1);
  const std::string twice = graph.add("Mul", of + "twice", {x.name, gate}).output(0);
  return with_number(graph, "Mul", layer.name(), twice, 0.5f);
}

// LayerNormalization is in operator set 17 and later, and normalises over the last axes only. In earlier sets every
// reader normalises each channel of an image, so each position becomes a channel whose pixels are the channels.
std::string add_layer_norm(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x) {
  const std::string of = layer.name() + ".";
  const bool images = x.shape.rank() == 4;
  if (graph.opset() >= 17) {
    Names inputs{images ? transposed(graph, of + "last", x.name, {0, 2, 3, 1}) : x.name};
    for (const std::string& param : graph.params(described.params)) inputs.push_back(param);
    onnx::NodeProto& whole = graph.add("LayerNormalization", images ? of + "normal" : layer.name(), inputs);
    set_attribute(whole, "axis", int64_t{-1});
    set_attribute(whole, "epsilon", described.number("eps"));
    return images ? transposed(graph, layer.name(), whole.output(0), {0, 3, 1, 2}) : whole.output(0);
  }
  const int64_t positions = images ? x.shape[1] * x.shape[2] : 1, channels = x.shape[x.shape.rank() - 1];
  const std::string last = images ? transposed(graph, of + "last", x.name, {0, 2, 3, 1}) : x.name;
  const std::vector<float> ones(static_cast<size_t>(positions), 1.0f), zeros(static_cast<size_t>(positions));
  onnx::NodeProto& node = graph.add(
      "InstanceNormalization", of + "normal",
      {reshaped(graph, of + "positions", last, {0, positions, channels, 1}),
       graph.constant(of + "ones", {positions}, ones.data()), graph.constant(of + "zeros", {positions}, zeros.data())});
  set_attribute(node, "epsilon", described.number("eps"));
  const std::string normal = node.output(0);
  const std::string plain =
      images ? transposed(graph, of + "image",
                          reshaped(graph, of + "pixels", normal, {0, x.shape[1], x.shape[2], channels}), {0, 3, 1, 2})
             : reshaped(graph, of + "row", normal, {0, channels});
  // Each channel's weight and bias. Not every reader adds constants that broadcast.
  const std::vector<float> none(static_cast<size_t>(channels)), unit(static_cast<size_t>(channels), 1.0f);
  Names inputs{plain};
  for (const std::string& param : graph.params(described.params)) inputs.push_back(param);
  inputs.push_back(graph.constant(of + "mean", {channels}, none.data()));
  inputs.push_back(graph.constant(of + "var", {channels}, unit.data()));
  onnx::NodeProto& affine = graph.add("BatchNormalization", layer.name(), inputs);
  set_attribute(affine, "epsilon", 0.0);
  return affine.output(0);
}

// The mean of squares in a window; at borders it is divided by the whole window area, as in lrn.h.
std::string add_lrn_within(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x) {
  const std::string of = layer.name() + ".";
  const int64_t size = described.integer("size"), before = size / 2, after = (size - 1) / 2;
  const std::string squares = graph.add("Mul", of + "squares", {x.name, x.name}).output(0);
  const std::string pads = graph.constant(of + "pads", {0, 0, before, before, 0, 0, after, after});
  onnx::NodeProto& pool =
      graph.add("AveragePool", of + "mean", {graph.add("Pad", of + "padded", {squares, pads}).output(0)});
  set_attribute(pool, "kernel_shape", Integers{size, size});
  const auto number = [&](const char* name) { return static_cast<float>(described.number(name)); };
  const std::string scaled = with_number(graph, "Mul", of + "scaled", pool.output(0), number("alpha"));
  const std::string sum = with_number(graph, "Add", of + "sum", scaled, number("k"));
  return graph.add("Mul", layer.name(), {x.name, with_number(graph, "Pow", of + "power", sum, -number("beta"))})
      .output(0);
}

// N x (channel, place in the window) x OH x OW: a convolution whose filters each select a pixel.
std::string add_windows(OnnxGraph& graph, const std::string& of, const Described& described, const OnnxValue& x) {
  const Integers& kernel = described.integers("kernel");
  const int64_t area = kernel[0] * kernel[1], filters = x.shape[3] * area;
  std::vector<float> filter(static_cast<size_t>(filters * area));
  for (int64_t i = 0; i < filters; ++i) filter[static_cast<size_t>(i * area + i % area)] = 1;
  const std::string weight = graph.constant(of + "pixels", {filters, 1, kernel[0], kernel[1]}, filter.data());
  onnx::NodeProto& node = graph.add("Conv", of + "windows", {x.name, weight});
  set_attributes(node, described);
  set_attribute(node, "group", x.shape[3]);
  return node.output(0);
}

// The windows of all positions become the channels of one pixel, with one group per position. Every reader has these
// operators.
std::string add_local(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x) {
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
  set_attribute(node, "kernel_shape", Integers{1, 1});
  set_attribute(node, "group", positions);
  const std::string image = reshaped(graph, of + "image", node.output(0), {0, out[1], out[2], filters});
  return transposed(graph, layer.name(), image, {0, 3, 1, 2});
}

// Aligns the slopes with the channels of N x C x H x W.
std::string add_prelu(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x) {
  const Param& weight = *described.params.at(0);
  const int64_t slopes = weight.full_shape.elements();
  const Shape shape = x.shape.rank() == 4 ? Shape{slopes, 1, 1} : Shape{slopes};
  return graph.add("PRelu", layer.name(), {x.name, graph.param(weight, shape)}).output(0);
}

std::string times_transposed(OnnxGraph& graph, const std::string& name, const std::string& x,
                             const std::string& matrix) {
  onnx::NodeProto& node = graph.add("Gemm", name, {x, matrix});
  set_attribute(node, "transB", int64_t{1});
  return node.output(0);
}

// The products with rows of length 1, divided by the lengths of x. Every reader has these operators, and none must
// broadcast: products with ones sum up the squares of a row, and repeat its length for every output.
std::string add_cosine(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x) {
  const Param& weight = *described.params.at(0);
  const int64_t out = weight.file_shape.rows(), features = weight.file_shape.row_elements();
  const std::string of = layer.name() + ".", rows = graph.flat(of + "flatten", x);
  const std::vector<float> ones(static_cast<size_t>(std::max(out, features)), 1.0f);
  const std::string squares = graph.add("Mul", of + "squares", {rows, rows}).output(0);
  const std::string sum =
      times_transposed(graph, of + "sum", squares, graph.constant(of + "ones", {1, features}, ones.data()));
  const std::string positive = with_number(graph, "Add", of + "positive", sum, static_cast<float>(kLeastSquare));
  const std::string inverse = with_number(graph, "Pow", of + "inverse", positive, -0.5f);
  const std::string inverses =
      times_transposed(graph, of + "inverses", inverse, graph.constant(of + "columns", {out, 1}, ones.data()));
  const std::string products = times_transposed(graph, of + "products", rows, graph.unit_rows(weight));
  return graph.add("Mul", layer.name(), {products, inverses}).output(0);
}

// Operators that are not written as a single ONNX operator.
struct Special {
  const char* op;
  std::string (*add)(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x);
};
constexpr Special kSpecials[] = {{"branches", add_branches_side_by_side},
                                 {"cosine", add_cosine},
                                 {"drop_path", add_nothing},
                                 {"dropout", add_nothing},
                                 {"gelu", add_gelu},
                                 {"hard_sigmoid", add_hard_sigmoid},
                                 {"hard_swish", add_hard_swish},
                                 {"layer_norm", add_layer_norm},
                                 {"local", add_local},
                                 {"lrn_within", add_lrn_within},
                                 {"prelu", add_prelu},
                                 {"relu6", add_relu6},
                                 {"residual", add_residual},
                                 {"scale", add_scale},
                                 {"silu", add_silu},
                                 {"square", add_square}};

// Returns the name of the layer's output.
std::string add_described(OnnxGraph& graph, Layer& layer, const Described& described, const OnnxValue& x,
                          const Folded* folded) {
  for (const Special& special : kSpecials)
    if (described.op == special.op) return special.add(graph, layer, described, x);
  for (const Operator& op : kOperators)
    if (described.op == op.ours) return add_operator(graph, op, layer, described, x, folded);
  fail("layer '", layer.name(), "' is of type ", layer.type(), ", which owt cannot write as ONNX");
}

}  // namespace

OnnxValue add_layers(OnnxGraph& graph, const Net& net, OnnxValue x) {
  int64_t norm = -1;  // the latest layer that the weights of another include
  for (int64_t i = 0; i < net.size(); ++i) {
    Layer& layer = net.layer(i);
    if (i == norm) {
      x.name = graph.rename_output(layer.name());
      graph.record(x.name, layer.name());
      continue;
    }
    const std::optional<Folded> folded = foldable(graph, net, i, x.shape);
    if (folded) norm = folded->layer;
    x = {add_described(graph, layer, layer.describe(x.shape), x, folded ? &*folded : nullptr),
         layer.out_shape(x.shape)};
    if (norm < i) graph.record(x.name, layer.name());
  }
  return x;
}

std::vector<std::string> onnx_layer_types() {
  std::vector<std::string> types;
  for (const Special& special : kSpecials) types.emplace_back(special.op);
  for (const Operator& op : kOperators) types.emplace_back(op.ours);
  return types;
}

}  // namespace owt

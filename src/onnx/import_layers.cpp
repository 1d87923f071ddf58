#include "src/onnx/import_layers.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "layers/base/geometry.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

using Integers = std::vector<int64_t>;

constexpr int64_t kMostExtent = 1 << 16;  // a kernel, a stride or a pad

// "3", or "[1, 7]" for two different numbers.
std::string in_file(const Integers& both) {
  return both[0] == both[1] ? format("{}", both[0]) : format("[{}, {}]", both[0], both[1]);
}

OnnxConstant filled(float value, int64_t count) {
  return {{count}, std::vector<float>(static_cast<size_t>(count), value), {}};
}

// A list of layers or branches under a key; empty if there are none.
std::string list_in_file(const std::string& key, const std::string& lines, int depth) {
  return lines.empty() ? "" : format("{} = [\n{}{:{}}]", key, lines, "", 2 * depth + 2);
}

// Whether ONNX adds a number of the constant to each channel. The means of images are rows here, whatever dimensions
// they have in the graph.
bool is_per_channel(const OnnxConstant& of, const OnnxToLayers::Rows& x) {
  const size_t from_end = x.channels_first() ? 3 : 1;
  const bool in_place = x.image() ? of.dims.size() >= from_end && of.dims[of.dims.size() - from_end] == x.columns()
                                  : std::ranges::count(of.dims, x.columns()) > 0;
  return in_place && of.elements() == x.columns() && !of.values.empty();
}

constexpr const char* kNoDecay = "weight = { decay = 0.0 }, bias = { decay = 0.0 }";

}  // namespace

const std::map<std::string, OnnxToLayers::Add> OnnxToLayers::kAdds{
    {"AveragePool", &OnnxToLayers::add_pool},
    {"BatchNormalization", &OnnxToLayers::add_batch_norm},
    {"Conv", &OnnxToLayers::add_linear},
    {"Dropout", &OnnxToLayers::add_dropout},
    {"Flatten", &OnnxToLayers::reshape},
    {"Gelu", &OnnxToLayers::add_gelu},
    {"Gemm", &OnnxToLayers::add_linear},
    {"GlobalAveragePool", &OnnxToLayers::add_global_pool},
    {"LRN", &OnnxToLayers::add_lrn},
    {"LayerNormalization", &OnnxToLayers::add_layer_norm},
    {"LeakyRelu", &OnnxToLayers::add_leaky},
    {"MatMul", &OnnxToLayers::add_linear},
    {"MaxPool", &OnnxToLayers::add_pool},
    {"PRelu", &OnnxToLayers::add_prelu},
    {"ReduceMean", &OnnxToLayers::add_global_pool},
    {"Relu", &OnnxToLayers::add_relu},
    {"Reshape", &OnnxToLayers::reshape},
    {"Squeeze", &OnnxToLayers::reshape},
    {"Transpose", &OnnxToLayers::transpose},
    {"Unsqueeze", &OnnxToLayers::reshape},
    {"concat", &OnnxToLayers::add_branches},
    {"plus", &OnnxToLayers::add_factors},
    {"product", &OnnxToLayers::add_scale},
    {"sum", &OnnxToLayers::add_residual},
    {"times", &OnnxToLayers::add_factors},
};

std::string OnnxToLayers::layers_of(const OnnxChain& chain, Rows& x, int depth, const std::string& within) {
  At at{x, depth, within};
  for (size_t i = 0; i < chain.size();) i += add(chain[i], i + 1 < chain.size() ? &chain[i + 1] : nullptr, at);
  return at.text;
}

size_t OnnxToLayers::add(const OnnxPart& part, const OnnxPart* next, At& at) {
  static const std::map<std::string, std::string> activations{{"Abs", "abs"},
                                                              {"HardSwish", "hard_swish"},
                                                              {"Sigmoid", "sigmoid"},
                                                              {"Softplus", "softplus"},
                                                              {"Tanh", "tanh"},
                                                              {"gelu", "gelu"},
                                                              {"relu6", "relu6"},
                                                              {"silu", "silu"},
                                                              {"square", "square"},
                                                              {"hard_swish", "hard_swish"},
                                                              {"hard_sigmoid", "hard_sigmoid"}};
  if (const auto kind = activations.find(part.op); kind != activations.end())
    return add_activation(at, format("kind = \"{}\"", kind->second));
  const auto known = kAdds.find(part.op);
  if (known == kAdds.end()) source_.refuse(*part.node, "which no layer computes");
  return (this->*known->second)(part, next, at);
}

// ---- lines of the model file ----

void OnnxToLayers::add_line(At& at, const std::string& name, const std::string& type, const std::string& keys) {
  ++layers_;
  at.text += format("{:{}}{{ name = \"{}\", type = \"{}\"{}{} }},\n", "", 2 * at.depth, name, type,
                    keys.empty() ? "" : ", ", keys);
}

std::string OnnxToLayers::add_layer(At& at, const std::string& kind, const std::string& type, const std::string& keys) {
  std::string name = name_of(kind);
  add_line(at, name, type, keys);
  return name;
}

size_t OnnxToLayers::add_activation(At& at, const std::string& keys) {
  add_layer(at, "act", "activation", keys);
  return 1;
}

void OnnxToLayers::add_weight(const At& at, const std::string& layer, const std::string& name, OnnxConstant of) {
  weights_.push_back({concat(at.within, layer, ".", name), std::move(of)});
}

// ---- layers of one value at a time ----

size_t OnnxToLayers::add_relu(const OnnxPart&, const OnnxPart*, At& at) {
  add_layer(at, "relu", "relu");
  return 1;
}

size_t OnnxToLayers::add_leaky(const OnnxPart& part, const OnnxPart*, At& at) {
  return add_activation(at, format("kind = \"leaky\", slope = {}", attribute_of(*part.node, "alpha", 0.01f)));
}

size_t OnnxToLayers::add_prelu(const OnnxPart& part, const OnnxPart*, At& at) {
  OnnxConstant slopes = weight(*part.node, 1);
  const bool shared = slopes.elements() == 1;
  if (slopes.values.empty() || (!shared && (!at.x.channels_first() || !is_per_channel(slopes, at.x))))
    source_.refuse(*part.node, "has other slopes than one for each channel");
  slopes.dims = {slopes.elements()};
  const std::string name =
      add_layer(at, "act", "activation", shared ? "kind = \"prelu\", shared = true" : "kind = \"prelu\"");
  add_weight(at, name, "weight", std::move(slopes));
  return 1;
}

size_t OnnxToLayers::add_gelu(const OnnxPart& part, const OnnxPart*, At& at) {
  const bool by_tanh = attribute_of(*part.node, "approximate", std::string("none")) == "tanh";
  return add_activation(at, by_tanh ? "kind = \"gelu\", approximate = \"tanh\"" : "kind = \"gelu\"");
}

size_t OnnxToLayers::add_dropout(const OnnxPart& part, const OnnxPart*, At& at) {
  const onnx::NodeProto& node = *part.node;
  const bool given = node.input_size() > 1 && !node.input(1).empty();
  add_layer(at, "drop", "dropout",
            format("rate = {}", given ? vector(node, 1, 1).values[0] : attribute_of(node, "ratio", 0.5f)));
  return 1;
}

size_t OnnxToLayers::add_lrn(const OnnxPart& part, const OnnxPart*, At& at) {
  const onnx::NodeProto& node = *part.node;
  if (!at.x.channels_first()) source_.refuse(node, "normalises other dimensions than the channels");
  const int64_t size = attribute_of(node, "size", int64_t{5});
  if (size % 2 == 0) source_.refuse(node, "has an even size, which ONNX and owt centre in different ways");
  add_layer(at, "norm", "lrn",
            format("size = {}, alpha = {}, beta = {}, k = {}", size, attribute_of(node, "alpha", 1e-4f),
                   attribute_of(node, "beta", 0.75f), attribute_of(node, "bias", 1.0f)));
  return 1;
}

size_t OnnxToLayers::add_pool(const OnnxPart& part, const OnnxPart*, At& at) {
  const onnx::NodeProto& node = *part.node;
  const bool max = node.op_type() == "MaxPool";
  if (!at.x.channels_first()) source_.refuse(node, "has an input that is no image");
  const WindowKeys of = windows_of(node, attribute_of(node, "kernel_shape", Integers{}), at.x);
  if (of.kernel[0] != of.kernel[1] || of.stride[0] != of.stride[1] || of.pad[0] != of.pad[1] ||
      of.dilation != Integers{1, 1})
    source_.refuse(node, "has windows that are not square");
  const bool includes_pad = attribute_of(node, "count_include_pad", int64_t{0}) == 1;
  if (!max && includes_pad && !of.same_padding)
    source_.refuse(node, "counts positions after the image that no layer counts; wanted as many as before it");
  const bool counts = max || of.pad[0] == 0 || includes_pad;
  add_layer(at, "pool", max ? "max_pool" : "avg_pool",
            format("kernel = {}, stride = {}{}{}{}", of.kernel[0], of.stride[0],
                   of.pad[0] ? format(", pad = {}", of.pad[0]) : "", of.round_up ? ", round = \"up\"" : "",
                   counts ? "" : ", count_pad = false"));
  at.x.shape = {of.out[0], of.out[1], at.x.columns()};
  return 1;
}

size_t OnnxToLayers::add_global_pool(const OnnxPart& part, const OnnxPart*, At& at) {
  const onnx::NodeProto& node = *part.node;
  if (!at.x.image() || at.x.flat) source_.refuse(node, "has an input that is no image");
  if (node.op_type() == "ReduceMean") {
    Integers axes = attribute_of(node, "axes", Integers{});
    if (node.input_size() > 1) axes = weight(node, 1).integers;
    for (int64_t& axis : axes) axis += axis < 0 ? 4 : 0;
    std::sort(axes.begin(), axes.end());
    if (axes != (at.x.channels_last ? Integers{1, 2} : Integers{2, 3}))
      source_.refuse(node, "is the mean over other dimensions than height and width");
  }
  add_layer(at, "pool", "global_avg_pool");
  at.x = {Shape{at.x.columns()}};
  return 1;
}

size_t OnnxToLayers::transpose(const OnnxPart& part, const OnnxPart*, At& at) {
  const Integers axes = attribute_of(*part.node, "perm", Integers{});
  const bool to_last = axes == Integers{0, 2, 3, 1}, to_first = axes == Integers{0, 3, 1, 2};
  if (at.x.flat || (!at.x.image() ? !to_first && !to_last : at.x.channels_last ? !to_first : !to_last))
    source_.refuse(*part.node, "changes the order of the dimensions in a way that no layer does");
  at.x.channels_last = at.x.image() && to_last;
  return 1;
}

// Images become rows. Means of images are rows already, whatever their dimensions in the graph.
size_t OnnxToLayers::reshape(const OnnxPart& part, const OnnxPart*, At& at) {
  const onnx::NodeProto& node = *part.node;
  if (!at.x.image() || at.x.flat) return 1;
  Integers to{0, -1};
  if (node.op_type() == "Reshape" && node.input_size() > 1 && source_.is_constant(node.input(1)))
    to = source_.constant(node.input(1)).integers;
  if (node.op_type() == "Unsqueeze" || (node.op_type() == "Flatten" && attribute_of(node, "axis", int64_t{1}) != 1) ||
      to.size() != 2 || (to[1] != -1 && to[1] != at.x.shape.elements()) ||
      (at.x.channels_last && at.x.shape.elements() != at.x.columns()))
    source_.refuse(node, "makes other rows of an image than its channels, one after the other");
  at.x.channels_last = false;
  at.x.flat = true;
  return 1;
}

// ---- layers with weights ----

OnnxConstant OnnxToLayers::weight(const onnx::NodeProto& node, int input) const {
  if (node.input_size() <= input || node.input(input).empty() || !source_.is_constant(node.input(input)))
    source_.refuse(node, concat("needs a constant as its input ", input));
  return source_.constant(node.input(input));
}

OnnxConstant OnnxToLayers::vector(const onnx::NodeProto& node, int input, int64_t wanted) const {
  OnnxConstant of = weight(node, input);
  if (static_cast<int64_t>(of.values.size()) != wanted)
    source_.refuse(node, concat("has ", of.values.size(), " numbers in its input ", input, ", wanted ", wanted));
  of.dims = {wanted};
  return of;
}

// The second factor of a product, with a row for each output.
OnnxConstant OnnxToLayers::matrix(const OnnxPart& part, const Rows& x) const {
  const onnx::NodeProto& node = *part.node;
  OnnxConstant w = weight(node, 1);
  if (w.dims.size() != 2 || w.values.empty()) source_.refuse(node, "has no matrix as its second factor");
  if (part.op == "MatMul" || attribute_of(node, "transB", int64_t{0}) == 0) w = transposed(std::move(w), {1, 0});
  if (attribute_of(node, "alpha", 1.0f) != 1 || attribute_of(node, "beta", 1.0f) != 1 ||
      attribute_of(node, "transA", int64_t{0}) != 0)
    source_.refuse(node, "has factors, or transposes its input");
  if (x.channels_last) w.dims = {w.dims[0], w.dims[1], 1, 1};
  if (w.dims[1] != (x.channels_last ? x.columns() : x.shape.elements()) || x.channels_first())
    source_.refuse(node, format("takes rows of {} numbers; its input is {}", w.dims[1], x.shape.str()));
  return w;
}

// A convolution or a product, and the sum that follows as its bias. A convolution of means is a dense layer.
size_t OnnxToLayers::add_linear(const OnnxPart& part, const OnnxPart* next, At& at) {
  const onnx::NodeProto& node = *part.node;
  OnnxConstant w = part.op == "Conv" ? weight(node, 1) : matrix(part, at.x);
  if (part.op == "Conv" && (w.dims.size() != 4 || w.values.empty() || (at.x.image() && !at.x.channels_first())))
    source_.refuse(node, "is no convolution of images");
  const int64_t out = w.dims[0];
  std::optional<OnnxConstant> bias;
  if (part.op != "MatMul" && node.input_size() > 2 && !node.input(2).empty()) bias = vector(node, 2, out);
  const bool conv = w.dims.size() == 4 && at.x.image();
  std::string keys = format("out = {}", out);
  if (conv) {
    keys += conv_keys(part, w, at.x);
  } else {
    if (w.dims.size() == 4 && (w.dims[2] * w.dims[3] != 1 || w.dims[1] != at.x.columns()))
      source_.refuse(node, format("takes {} channels; its input is {} means", w.dims[1], at.x.columns()));
    w.dims.resize(2);
    at.x = {Shape{out}};
  }
  size_t parts = 1;
  if (!bias && next && next->op == "plus" && !next->inverse && !next->number) {
    OnnxConstant term = source_.constant(next->constant);
    if (is_per_channel(term, at.x)) {
      bias = OnnxConstant{{out}, std::move(term.values), {}};
      parts = 2;
    }
  }
  if (!bias) keys += ", bias = false";
  const std::string name = conv ? add_layer(at, "conv", "conv", keys) : add_layer(at, "fc", "dense", keys);
  add_weight(at, name, "weight", std::move(w));
  if (bias) add_weight(at, name, "bias", std::move(*bias));
  return parts;
}

std::string OnnxToLayers::conv_keys(const OnnxPart& part, const OnnxConstant& w, Rows& x) const {
  const onnx::NodeProto& node = *part.node;
  const int64_t groups = part.op == "Conv" ? attribute_of(node, "group", int64_t{1}) : 1;
  if (groups < 1 || groups > x.columns() || w.dims[1] * groups != x.columns())
    source_.refuse(node, format("takes {} channels in each of {} groups; its input has {} channels", w.dims[1], groups,
                                x.columns()));
  const WindowKeys of = windows_of(node, {w.dims[2], w.dims[3]}, x);
  x.shape = {of.out[0], of.out[1], w.dims[0]};
  std::string keys = ", kernel = " + in_file(of.kernel);
  if (of.stride != Integers{1, 1}) keys += ", stride = " + in_file(of.stride);
  if (of.pad != Integers{0, 0}) keys += ", pad = " + in_file(of.pad);
  if (of.dilation != Integers{1, 1}) keys += ", dilation = " + in_file(of.dilation);
  if (groups > 1) keys += format(", groups = {}", groups);
  return keys + (of.round_up ? ", round = \"up\"" : "");
}

// Our windows begin `pad` positions before the image. So the positions after it matter only through the number of
// windows, and in means that count them (same_padding).
OnnxToLayers::WindowKeys OnnxToLayers::windows_of(const onnx::NodeProto& node, Integers kernel, const Rows& x) const {
  WindowKeys of;
  of.kernel = std::move(kernel);
  of.stride = attribute_of(node, "strides", Integers{1, 1});
  of.dilation = attribute_of(node, "dilations", Integers{1, 1});
  const Integers pads = attribute_of(node, "pads", Integers{0, 0, 0, 0});
  if (of.kernel.size() != 2 || of.stride.size() != 2 || of.dilation.size() != 2 || pads.size() != 4)
    source_.refuse(node, "does not slide over images of two dimensions");
  const std::string automatic = attribute_of(node, "auto_pad", std::string("NOTSET"));
  const bool up = attribute_of(node, "ceil_mode", int64_t{0}) == 1, conv = node.op_type() == "Conv";
  bool down_fits = true, up_fits = true;
  for (size_t d = 0; d < 2; ++d) {
    for (const int64_t number : {of.kernel[d], of.stride[d], of.dilation[d]})
      if (number < 1 || number > kMostExtent)
        source_.refuse(node, format("has a kernel, stride or dilation of {}", number));
    const int64_t extent = x.shape[static_cast<int>(d)], stride = of.stride[d];
    const int64_t window = (of.kernel[d] - 1) * of.dilation[d] + 1;
    int64_t before = pads[d], after = pads[d + 2];
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t all = std::max<int64_t>(((extent + stride - 1) / stride - 1) * stride + window - extent, 0);
      before = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      after = all - before;
    }
    if (before < 0 || after < 0 || before > kMostExtent || after > kMostExtent || extent + before + after < window)
      source_.refuse(node, "has windows that exceed the image");
    const int64_t span = extent + before + after - window;
    int64_t count = span / stride + 1;
    // A last window that would begin after the image is dropped (PyTorch's ceil_mode).
    if (up && span % stride > 0 && count * stride < extent + before) ++count;
    const auto windows = [&](bool round_up) {
      const Window ours{.kernel = window, .stride = stride, .pad = before, .round_up = round_up};
      const int64_t room = extent + 2 * before - window;
      return conv && round_up && room >= 0 ? (room + stride - 1) / stride + 1 : ours.count(extent);
    };
    down_fits = down_fits && windows(false) == count;
    up_fits = up_fits && windows(true) == count;
    if (!down_fits && !up_fits)
      source_.refuse(node,
                     format("has {} positions before the image and {} after it, and no layer has as many windows; "
                            "wanted equally many",
                            before, after));
    const int64_t last_end = (count - 1) * stride + window - before;
    of.same_padding &= std::min(last_end, extent + after) == std::min(last_end, extent + before);
    of.pad.push_back(before);
    of.out.push_back(count);
  }
  of.round_up = !down_fits;
  return of;
}

size_t OnnxToLayers::add_batch_norm(const OnnxPart& part, const OnnxPart*, At& at) {
  const onnx::NodeProto& node = *part.node;
  if (at.x.image() && !at.x.channels_first()) source_.refuse(node, "normalises other dimensions than the channels");
  const float eps = attribute_of(node, "epsilon", 1e-5f);
  const double momentum = std::round((1 - static_cast<double>(attribute_of(node, "momentum", 0.9f))) * 1e6) / 1e6;
  const std::string name = add_layer(at, "norm", "batch_norm",
                                     (eps == 1e-5f ? "" : format("eps = {}, ", eps)) +
                                         (momentum == 0.1 ? "" : format("momentum = {}, ", momentum)) + kNoDecay);
  int input = 1;
  for (const char* param : {"weight", "bias", "running_mean", "running_var"})
    add_weight(at, name, param, vector(node, input++, at.x.columns()));
  return 1;
}

size_t OnnxToLayers::add_layer_norm(const OnnxPart& part, const OnnxPart*, At& at) {
  const onnx::NodeProto& node = *part.node;
  const int64_t axis = attribute_of(node, "axis", int64_t{-1});
  if (at.x.image() ? !at.x.channels_last || (axis != -1 && axis != 3) : axis != -1 && axis != 1)
    source_.refuse(node, "normalises other dimensions than the channels");
  const std::string name =
      add_layer(at, "norm", "layer_norm", format("eps = {}, {}", attribute_of(node, "epsilon", 1e-5f), kNoDecay));
  const bool biased = node.input_size() > 2 && !node.input(2).empty();
  add_weight(at, name, "weight", vector(node, 1, at.x.columns()));
  add_weight(at, name, "bias", biased ? vector(node, 2, at.x.columns()) : filled(0, at.x.columns()));
  return 1;
}

// x * constant + constant, for each channel of images: a convolution of kernel 1 with a group for each channel. Only
// parameters are trained.
size_t OnnxToLayers::add_factors(const OnnxPart& part, const OnnxPart* next, At& at) {
  if (!at.x.image() || at.x.flat)
    source_.refuse(*part.node, "has a constant for the columns of rows, which no layer computes");
  const OnnxPart* factor = part.op == "times" ? &part : nullptr;
  const OnnxPart* term = !factor ? &part : next && next->op == "plus" ? next : nullptr;
  const auto trained = [&](const OnnxPart* of) { return of && source_.is_parameter(of->constant); };
  const int64_t channels = at.x.columns();
  OnnxConstant weights = factor ? per_channel(*factor, at.x) : filled(1, channels);
  weights.dims = {channels, 1, 1, 1};
  const std::string name = add_layer(at, "conv", "conv",
                                     format("out = {}, kernel = 1, groups = {}, {}decay = 0.0, bias = {}", channels,
                                            channels, trained(factor) ? "" : "lr = 0.0, ",
                                            !term           ? "false"
                                            : trained(term) ? "{ decay = 0.0 }"
                                                            : "{ lr = 0.0, decay = 0.0 }"));
  add_weight(at, name, "weight", std::move(weights));
  if (term) add_weight(at, name, "bias", per_channel(*term, at.x));
  return factor && term ? 2 : 1;
}

OnnxConstant OnnxToLayers::per_channel(const OnnxPart& part, const Rows& x) const {
  if (part.number) return filled(*part.number, x.columns());
  OnnxConstant of = source_.constant(part.constant);
  if (!is_per_channel(of, x))
    source_.refuse(*part.node, "has a constant that is not a number for each channel, which no layer computes");
  for (float& value : of.values)
    if (part.inverse) value = part.op == "times" ? 1 / value : -value;
  of.dims = {x.columns()};
  return of;
}

// ---- blocks ----

OnnxToLayers::BlockText OnnxToLayers::block(const OnnxPart& part, const std::string& kind, const At& at, int deeper) {
  BlockText of{name_of(kind), {}, {}};
  for (const OnnxChain& branch : part.branches) {
    Rows out = at.x;
    of.texts.push_back(layers_of(branch, out, at.depth + deeper, concat(at.within, of.name, ".")));
    of.outs.push_back(out);
  }
  return of;
}

size_t OnnxToLayers::add_residual(const OnnxPart& part, const OnnxPart* next, At& at) {
  const BlockText of = block(part, "block", at);
  if (of.outs[0].shape != of.outs[1].shape || of.outs[0].channels_last != of.outs[1].channels_last)
    source_.refuse(*part.node,
                   format("adds {} and {}, which differ in shape", of.outs[0].shape.str(), of.outs[1].shape.str()));
  size_t body = part.branches[0].size() >= part.branches[1].size() ? 0 : 1;
  if (of.texts[body].empty()) body = 1 - body;
  if (of.texts[body].empty()) source_.refuse(*part.node, "adds a value to itself, which no layer computes");
  const bool relu = next && next->op == "Relu";
  const std::string shortcut = list_in_file("shortcut", of.texts[1 - body], at.depth);
  add_line(at, of.name, "residual",
           concat(relu ? "" : "relu = false, ", list_in_file("body", of.texts[body], at.depth),
                  shortcut.empty() ? "" : ", ", shortcut));
  at.x = of.outs[0];
  return relu ? 2 : 1;
}

size_t OnnxToLayers::add_branches(const OnnxPart& part, const OnnxPart*, At& at) {
  const BlockText of = block(part, "mixed", at, 3);
  const Rows& first = of.outs[0];
  const int64_t axis = attribute_of(*part.node, "axis", int64_t{1}), rank = first.image() ? 4 : 2;
  std::string branches;
  int64_t columns = 0;
  for (size_t b = 0; b < of.texts.size(); ++b) {
    const Rows& out = of.outs[b];
    if (out.shape.rank() != first.shape.rank() || out.channels_last != first.channels_last || out.flat ||
        (axis < 0 ? axis + rank : axis) != (out.channels_last ? 3 : 1))
      source_.refuse(*part.node, "concatenates other dimensions than the channels");
    columns += out.columns();
    const std::string layers = list_in_file("layers", of.texts[b], at.depth + 1);
    branches += format("{:{}}{{{}{} }},\n", "", 2 * at.depth + 4, layers.empty() ? "" : " ", layers);
  }
  add_line(at, of.name, "branches", list_in_file("branches", branches, at.depth));
  at.x = first;
  at.x.shape = first.image() ? Shape{first.shape[0], first.shape[1], columns} : Shape{columns};
  return 1;
}

size_t OnnxToLayers::add_scale(const OnnxPart& part, const OnnxPart*, At& at) {
  const BlockText of = block(part, "scale", at);
  const size_t gate = of.texts[0].empty() ? 1 : 0;
  if (!of.texts[1 - gate].empty() || of.texts[gate].empty() || of.outs[gate].shape.elements() != at.x.columns())
    source_.refuse(*part.node, "multiplies two values, neither of which is a factor for each channel of the other");
  add_line(at, of.name, "scale", list_in_file("body", of.texts[gate], at.depth));
  return 1;
}

}  // namespace owt

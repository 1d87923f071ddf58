#include "src/onnx/export_int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace owt {
namespace {

using onnx::NodeProto, onnx::TensorProto;

struct QuantScale {
  float scale;
  uint8_t zero;
};

QuantScale scale_of(const ValueRange& range) {
  const float low = std::min(range.low, 0.0f), high = std::max(range.high, 0.0f);
  const float scale = high > low ? (high - low) / 255 : 1.0f;
  return {scale, static_cast<uint8_t>(std::lround(-low / scale))};
}

class Int8 {
 public:
  Int8(onnx::GraphProto& graph, OnnxGraph& names, std::map<std::string, ValueRange> ranges)
      : graph_(graph), names_(names), ranges_(std::move(ranges)) {
    for (NodeProto& node : *graph.mutable_node()) {
      nodes_.push_back(&node);
      maker_[node.output(0)] = &node;
      for (const std::string& input : node.input()) readers_[input].push_back(&node);
    }
    for (TensorProto& tensor : *graph.mutable_initializer()) constants_[tensor.name()] = &tensor;
    share_ranges();
    choose();
  }

  void insert_pairs() {
    google::protobuf::RepeatedPtrField<NodeProto> before;
    std::vector<std::string> products;  // the outputs of nodes whose weights are quantised
    for (const NodeProto* node : nodes_)
      if (is_product(*node)) products.push_back(node->output(0));
    before.Swap(graph_.mutable_node());
    const std::string images = graph_.input(0).name();
    const std::string quantised_images =
        is_quantised(images) ? add_pair(images, images, images + ".dequantised") : images;
    auto product = products.begin();
    for (NodeProto& node : before) {
      if (product != products.end() && node.output(0) == *product) quantise_weights(node), ++product;
      for (std::string& input : *node.mutable_input())
        if (input == images) input = quantised_images;
      const std::string y = node.output(0);
      if (is_quantised(y)) node.set_output(0, names_.unused(y + ".exact"));
      const std::string exact = node.output(0);
      graph_.add_node()->Swap(&node);
      if (is_quantised(y)) add_pair(y, exact, y);
    }
  }

 private:
  bool is_known(const std::string& value) const { return ranges_.contains(value); }
  bool is_quantised(const std::string& value) const { return quantised_.contains(value); }

  // The only node that reads the value; null if there are others.
  const NodeProto* only_reader(const std::string& value) const {
    const auto found = readers_.find(value);
    const bool is_output = graph_.output(0).name() == value;
    return !is_output && found != readers_.end() && found->second.size() == 1 ? found->second[0] : nullptr;
  }

  static bool is_matrix_of_rows(const NodeProto& node) {
    const auto& given = node.attribute();
    return std::any_of(given.begin(), given.end(),
                       [](const auto& one) { return one.name() == "transB" && one.i() == 1; });
  }

  // The relu that readers fuse with this node, because they quantise its output only.
  const NodeProto* relu_of(const NodeProto& node) const {
    const NodeProto* reader = only_reader(node.output(0));
    return reader && reader->op_type() == "Relu" ? reader : nullptr;
  }
  const std::string& result(const NodeProto& node) const {
    const NodeProto* relu = relu_of(node);
    return relu ? relu->output(0) : node.output(0);
  }

  // Conv or Gemm in INT8.
  bool is_product(const NodeProto& node) const {
    const bool conv = node.op_type() == "Conv", dense = node.op_type() == "Gemm" && is_matrix_of_rows(node);
    return ((conv && is_known(result(node))) || dense) && is_known(node.input(0)) && constants_.contains(node.input(1));
  }
  bool is_sum(const NodeProto& node) const {
    return node.op_type() == "Add" && is_known(node.input(0)) && is_known(node.input(1)) && is_known(result(node));
  }
  // An operator that is worth computing in INT8 between operators that are.
  bool is_between(const NodeProto& node) const {
    static const std::set<std::string> types{"AveragePool", "Concat", "Flatten", "GlobalAveragePool", "MaxPool"};
    if (types.contains(node.op_type())) return true;
    const auto maker = maker_.find(node.input(0));
    return node.op_type() == "Relu" && maker != maker_.end() && is_between(*maker->second);
  }

  // Flatten and Pad keep the values. A max pool and a relu on clipped values give the clipped result, so their input
  // needs no larger range than their output; then a max pool is computed on integers.
  void share_ranges() {
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      const std::string &type = (*node)->op_type(), &x = (*node)->input(0), &y = (*node)->output(0);
      const bool clips = type == "MaxPool" || type == "Relu", keeps = type == "MaxPool" || type == "Flatten";
      if (is_known(y) && ((clips && only_reader(x)) || (keeps && !is_known(x)))) ranges_[x] = ranges_[y];
    }
    for (const NodeProto* node : nodes_) {
      const std::string &type = node->op_type(), &x = node->input(0), &y = node->output(0);
      if (is_known(x) && (type == "MaxPool" || type == "Flatten" || type == "Pad")) ranges_[y] = ranges_[x];
    }
  }

  void choose() {
    std::set<std::string> wanted;
    for (auto each = nodes_.rbegin(); each != nodes_.rend(); ++each) {
      const NodeProto& node = **each;
      const auto& inputs = node.input();
      const auto known = [&](const std::string& input) { return is_known(input); };
      if (is_product(node))
        wanted.insert(inputs[0]);
      else if (is_sum(node) || (is_between(node) && wanted.contains(node.output(0)) &&
                                std::all_of(inputs.begin(), inputs.end(), known)))
        wanted.insert(inputs.begin(), inputs.end());
    }
    if (wanted.contains(graph_.input(0).name())) quantised_.insert(graph_.input(0).name());
    for (const NodeProto* node : nodes_) {
      const std::string &type = node->op_type(), &y = node->output(0);
      const bool made = (type == "Conv" && is_product(*node)) || is_sum(*node) || type == "Relu";
      const bool fused = (type == "Conv" || type == "Gemm" || type == "Add") && relu_of(*node);
      if (is_known(y) && (made || wanted.contains(y)) && !fused) quantised_.insert(y);
    }
  }

  // exact -> QuantizeLinear -> DequantizeLinear -> y, with the range of `value`.
  std::string add_pair(const std::string& value, const std::string& exact, const std::string& y) {
    const QuantScale by = scale_of(ranges_.at(value));
    const std::string scale = names_.constant(value + ".scale", by.scale);
    const std::string zero = names_.constant(value + ".zero", {}, TensorProto::UINT8, &by.zero, 1);
    const std::string integers = names_.add("QuantizeLinear", value + ".uint8", {exact, scale, zero}).output(0);
    NodeProto& back = names_.add("DequantizeLinear", value + ".dequantise", {integers, scale, zero});
    back.set_output(0, y);
    return y;
  }

  // The constant becomes integers under another name, and DequantizeLinear gives its old one.
  void replace(TensorProto& tensor, TensorProto::DataType type, const void* values, size_t bytes,
               const std::vector<float>& scales) {
    const std::string name = tensor.name(),
                      integers = names_.unused(name + (type == TensorProto::INT8 ? ".int8" : ".int32"));
    tensor.set_name(integers);
    tensor.set_data_type(type);
    tensor.set_raw_data(values, bytes);
    const Shape shape{std::ssize(scales)};
    OnnxGraph::Names inputs{integers, names_.constant(name + ".scale", shape, scales.data())};
    if (type == TensorProto::INT8) {
      const std::vector<int8_t> zeros(scales.size());
      inputs.push_back(names_.constant(name + ".zero", shape, TensorProto::INT8, zeros.data(), std::ssize(zeros)));
    }
    NodeProto& back = names_.add("DequantizeLinear", name + ".dequantise", inputs);
    set_attribute(back, "axis", int64_t{0});
    back.set_output(0, name);
  }

  static std::vector<float> floats(const TensorProto& tensor) {
    std::vector<float> values(tensor.raw_data().size() / sizeof(float));
    std::memcpy(values.data(), tensor.raw_data().data(), tensor.raw_data().size());
    return values;
  }

  // A channel's scale is large enough that its bias fits into an int32.
  void quantise_weights(const NodeProto& node) {
    TensorProto& weight = *constants_.at(node.input(1));
    const float of_input = scale_of(ranges_.at(node.input(0))).scale;
    const std::vector<float> weights = floats(weight);
    const std::vector<float> biases =
        node.input_size() > 2 ? floats(*constants_.at(node.input(2))) : std::vector<float>();
    const auto channels = static_cast<size_t>(weight.dims(0)), width = weights.size() / channels;
    std::vector<float> scales(channels), scales_of_biases(channels);
    std::vector<int8_t> integers(weights.size());
    std::vector<int32_t> whole_biases(biases.size());
    for (size_t c = 0; c < channels; ++c) {
      float largest = 0;
      for (size_t i = c * width; i < (c + 1) * width; ++i) largest = std::max(largest, std::abs(weights[i]));
      constexpr float kLargestBias = 1 << 30;
      const float least = biases.empty() ? 0 : std::abs(biases[c]) / (of_input * kLargestBias);
      scales[c] = std::max(largest / 127, least);
      if (scales[c] == 0) scales[c] = 1;
      for (size_t i = c * width; i < (c + 1) * width; ++i)
        integers[i] = static_cast<int8_t>(std::lround(weights[i] / scales[c]));
      scales_of_biases[c] = of_input * scales[c];
      if (!biases.empty()) whole_biases[c] = static_cast<int32_t>(std::lround(biases[c] / scales_of_biases[c]));
    }
    replace(weight, TensorProto::INT8, integers.data(), integers.size(), scales);
    if (!biases.empty())
      replace(*constants_.at(node.input(2)), TensorProto::INT32, whole_biases.data(),
              whole_biases.size() * sizeof(int32_t), scales_of_biases);
  }

  onnx::GraphProto& graph_;
  OnnxGraph& names_;
  std::map<std::string, ValueRange> ranges_;
  std::vector<NodeProto*> nodes_;
  std::map<std::string, NodeProto*> maker_;
  std::map<std::string, std::vector<const NodeProto*>> readers_;
  std::map<std::string, TensorProto*> constants_;
  std::set<std::string> quantised_;
};

}  // namespace

void convert_to_int8(onnx::GraphProto& graph, OnnxGraph& names, std::map<std::string, ValueRange> ranges) {
  Int8(graph, names, std::move(ranges)).insert_pairs();
}

}  // namespace owt

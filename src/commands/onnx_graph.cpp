#include "src/commands/onnx_graph.h"

#include <cmath>
#include <span>

#include "layers/cosine.h"
#include "src/system/log.h"

namespace owt {
namespace {

onnx::AttributeProto& attribute(onnx::NodeProto& node, const std::string& name,
                                onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& made = *node.add_attribute();
  made.set_name(name);
  made.set_type(type);
  return made;
}

}  // namespace

onnx::NodeProto& OnnxGraph::add(const std::string& type, const std::string& name, const Names& inputs) {
  onnx::NodeProto& node = *graph_.add_node();
  node.set_op_type(type);
  node.set_name(name);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(unused(name));
  return node;
}

std::string OnnxGraph::constant(const std::string& name, const Shape& shape, const float* values) {
  onnx::TensorProto& tensor = add_tensor(unused(name), shape, onnx::TensorProto::FLOAT);
  tensor.set_raw_data(values, static_cast<size_t>(shape.elements()) * sizeof(float));
  return tensor.name();
}

std::string OnnxGraph::constant(const std::string& name, const Integers& values) {
  onnx::TensorProto& tensor = add_tensor(unused(name), {static_cast<int64_t>(values.size())}, onnx::TensorProto::INT64);
  tensor.set_raw_data(values.data(), values.size() * sizeof(int64_t));
  return tensor.name();
}

std::string OnnxGraph::constant(const std::string& name, float value) {
  onnx::TensorProto& tensor = add_tensor(unused(name), {}, onnx::TensorProto::FLOAT);
  tensor.set_raw_data(&value, sizeof value);
  return tensor.name();
}

std::string OnnxGraph::param(const Param& param, const Shape& shape) {
  return constant(param.name, shape, read(param).data());
}

std::string OnnxGraph::unit_rows(const Param& param) {
  Tensor tensor = read(param);
  const int64_t width = param.file_shape.row_elements();
  for (int64_t row = 0; row < param.file_shape.rows(); ++row) {
    const std::span<float> values(tensor.data() + row * width, static_cast<size_t>(width));
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * static_cast<double>(value);
    if (square < kLeastSquare) continue;
    for (float& value : values) value = static_cast<float>(static_cast<double>(value) / std::sqrt(square));
  }
  return constant(param.name, param.file_shape, tensor.data());
}

OnnxGraph::Names OnnxGraph::params(const std::vector<Param*>& params) {
  Names names;
  for (const Param* each : params) names.push_back(param(*each, each->file_shape));
  return names;
}

std::string OnnxGraph::flat(const std::string& name, const OnnxValue& x) {
  if (x.shape.rank() == 2) return x.name;
  onnx::NodeProto& node = add("Flatten", name, {x.name});
  set_attribute(node, "axis", int64_t{1});
  return node.output(0);
}

void OnnxGraph::warn_of_unused() const {
  for (const std::string& name : unused_tensors(weights_, taken_))
    log_warn("{}: the model does not use '{}'", path_, name);
}

onnx::TensorProto& OnnxGraph::add_tensor(const std::string& name, const Shape& shape,
                                         onnx::TensorProto::DataType type) {
  onnx::TensorProto& tensor = *graph_.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (int i = 0; i < shape.rank(); ++i) tensor.add_dims(shape[i]);
  return tensor;
}

std::string OnnxGraph::unused(std::string name) {
  while (!names_.insert(name).second) name += '_';
  return name;
}

Tensor OnnxGraph::read(const Param& param) {
  taken_.insert(param.name);
  return read_parameter(weights_, path_, param);
}

void set_attribute(onnx::NodeProto& node, const std::string& name, int64_t value) {
  attribute(node, name, onnx::AttributeProto::INT).set_i(value);
}

void set_attribute(onnx::NodeProto& node, const std::string& name, double value) {
  attribute(node, name, onnx::AttributeProto::FLOAT).set_f(static_cast<float>(value));
}

void set_attribute(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  onnx::AttributeProto& made = attribute(node, name, onnx::AttributeProto::INTS);
  for (const int64_t value : values) made.add_ints(value);
}

}  // namespace owt

#include "src/onnx/export_graph.h"

#include <cmath>
#include <filesystem>
#include <span>
#include <vector>

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

constexpr int64_t kLargeTensor = 1 << 20;  // bytes

}  // namespace

OnnxData::OnnxData(const std::string& onnx_file)
    : location_(std::filesystem::path(onnx_file).filename().string() + ".data"), file_(onnx_file + ".data") {}

// Readers map tensors into memory that begin at a multiple of a page (ONNX, docs/ExternalData.md).
void OnnxData::begin(onnx::TensorProto& tensor, int64_t bytes) {
  constexpr int64_t kPage = 4096;
  const std::string gap(static_cast<size_t>((kPage - bytes_ % kPage) % kPage), '\0');
  write(gap.data(), gap.size());
  bytes_ += std::ssize(gap);
  const auto add = [&](const char* key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", location_);
  add("offset", std::to_string(bytes_));
  add("length", std::to_string(bytes));
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  bytes_ += bytes;
}

onnx::NodeProto& OnnxGraph::add(const std::string& type, const std::string& name, const Names& inputs) {
  onnx::NodeProto& node = *graph_.add_node();
  node.set_op_type(type);
  node.set_name(name);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(unused(name));
  return node;
}

std::string OnnxGraph::constant(const std::string& name, const Shape& shape, const float* values) {
  return constant(name, shape, onnx::TensorProto::FLOAT, values, shape.elements() * 4);
}

std::string OnnxGraph::constant(const std::string& name, const Shape& shape, onnx::TensorProto::DataType type,
                                const void* values, int64_t bytes) {
  onnx::TensorProto& tensor = add_tensor(unused(name), shape, type);
  add_values(tensor, values, bytes);
  return tensor.name();
}

std::string OnnxGraph::constant(const std::string& name, const Integers& values) {
  return constant(name, {std::ssize(values)}, onnx::TensorProto::INT64, values.data(), std::ssize(values) * 8);
}

std::string OnnxGraph::constant(const std::string& name, float value) {
  return constant(name, {}, onnx::TensorProto::FLOAT, &value, sizeof value);
}

std::string OnnxGraph::param(const Param& param, const Shape& shape) {
  onnx::TensorProto& tensor = add_tensor(unused(param.name), shape, onnx::TensorProto::FLOAT);
  read(param, [&](const Tensor& rows) { add_values(tensor, rows.raw(), rows.bytes()); });
  return tensor.name();
}

std::string OnnxGraph::unit_rows(const Param& param) {
  onnx::TensorProto& tensor = add_tensor(unused(param.name), param.file_shape, onnx::TensorProto::FLOAT);
  const auto width = static_cast<size_t>(param.file_shape.row_elements());
  std::vector<float> unit(width);
  read(param, [&](const Tensor& rows) {
    for (int64_t row = 0; row < rows.shape().rows(); ++row) {
      const std::span values(rows.data() + row * std::ssize(unit), width);
      double square = 0;
      for (const float value : values) square += static_cast<double>(value) * static_cast<double>(value);
      const double length = square < kLeastSquare ? 1 : std::sqrt(square);
      for (size_t i = 0; i < width; ++i) unit[i] = static_cast<float>(static_cast<double>(values[i]) / length);
      add_values(tensor, unit.data(), std::ssize(unit) * 4);
    }
  });
  return tensor.name();
}

OnnxGraph::Names OnnxGraph::params(const std::vector<Param*>& params) {
  Names names;
  for (const Param* each : params) names.push_back(param(*each, each->file_shape));
  return names;
}

ChannelScaling OnnxGraph::normalisation(const Described& norm) {
  const std::vector<float> weight = values(*norm.params.at(0)), bias = values(*norm.params.at(1)),
                           mean = values(*norm.params.at(2)), variance = values(*norm.params.at(3));
  ChannelScaling scaling;
  for (size_t c = 0; c < weight.size(); ++c) {
    scaling.factor.push_back(weight[c] / std::sqrt(static_cast<double>(variance[c]) + norm.number("eps")));
    scaling.summand.push_back(bias[c] - mean[c] * scaling.factor[c]);
  }
  return scaling;
}

OnnxGraph::Names OnnxGraph::scaled_params(const std::vector<Param*>& params, const ChannelScaling& by,
                                          const std::string& bias) {
  const Param& weight = *params.at(0);
  onnx::TensorProto& tensor = add_tensor(unused(weight.name), weight.file_shape, onnx::TensorProto::FLOAT);
  const auto width = static_cast<size_t>(weight.file_shape.row_elements());
  std::vector<float> scaled(width);
  size_t row = 0;
  read(weight, [&](const Tensor& rows) {
    const float* given = rows.data();
    for (int64_t i = 0; i < rows.shape().rows(); ++i, ++row, given += width) {
      for (size_t k = 0; k < width; ++k) scaled[k] = static_cast<float>(given[k] * by.factor[row]);
      add_values(tensor, scaled.data(), std::ssize(scaled) * 4);
    }
  });
  const std::vector<float> own = params.size() > 1 ? values(*params[1]) : std::vector<float>(row);
  std::vector<float> sum;
  for (size_t c = 0; c < row; ++c) sum.push_back(static_cast<float>(own[c] * by.factor[c] + by.summand[c]));
  return {tensor.name(), constant(bias, {std::ssize(sum)}, sum.data())};
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
  if (const int64_t bytes = shape.elements() * 4; type == onnx::TensorProto::FLOAT && bytes >= kLargeTensor) {
    if (data_)
      data_->begin(tensor, bytes);
    else
      tensor.mutable_raw_data()->reserve(static_cast<size_t>(bytes));
  }
  return tensor;
}

void OnnxGraph::add_values(onnx::TensorProto& tensor, const void* values, int64_t bytes) {
  const auto count = static_cast<size_t>(bytes);
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
    data_->write(values, count);
  else
    tensor.mutable_raw_data()->append(static_cast<const char*>(values), count);
}

std::vector<float> OnnxGraph::values(const Param& param) {
  std::vector<float> all;
  read(param, [&](const Tensor& rows) { all.insert(all.end(), rows.data(), rows.data() + rows.elements()); });
  return all;
}

void OnnxGraph::set_output(const std::string& name) {
  onnx::NodeProto& node = *graph_.mutable_node(graph_.node_size() - 1);
  if (auto recorded = layers_.extract(node.output(0))) {
    recorded.key() = name;
    layers_.insert(std::move(recorded));
  }
  node.set_output(0, name);
}

std::string OnnxGraph::rename_output(const std::string& layer) {
  const std::string name = unused(layer);
  set_output(name);
  return name;
}

std::string OnnxGraph::unused(std::string name) {
  while (!names_.insert(name).second) name += '_';
  return name;
}

void OnnxGraph::read(const Param& param, const std::function<void(const Tensor& rows)>& visit) {
  taken_.insert(param.name);
  read_parameter(weights_, path_, param, visit);
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

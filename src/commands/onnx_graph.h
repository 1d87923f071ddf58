// An ONNX graph under construction, and the weights file for its constants.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/files/safetensors.h"
#include "src/train/weights.h"

namespace owt {

struct OnnxValue {
  std::string name;
  Shape shape;  // for one image: N x H x W x C or N x F here; N x C x H x W in the file
};

class OnnxGraph {
 public:
  using Names = std::vector<std::string>;
  using Integers = std::vector<int64_t>;

  // weights: a safetensors file. taken: names that no node of a layer may use. The graph must outlive this.
  OnnxGraph(onnx::GraphProto& graph, const std::string& weights, std::set<std::string> taken)
      : graph_(graph), path_(weights), weights_(weights), names_(std::move(taken)) {}

  // Adds a node named after its layer; returns it so that attributes can be set.
  onnx::NodeProto& add(const std::string& type, const std::string& name, const Names& inputs);

  // These add constants and return their names.
  std::string constant(const std::string& name, const Shape& shape, const float* values);
  std::string constant(const std::string& name, const Integers& values);
  std::string constant(const std::string& name, float value);
  // Adds a parameter from the weights file, in ONNX's order, as a constant of this shape.
  std::string param(const Param& param, const Shape& shape);
  // Adds a parameter in another order: the value at i is the parameter's value at from(i).
  template <class From>
  std::string param(const Param& param, const Shape& shape, const From& from) {
    const Tensor tensor = read(param);
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.data()[from(static_cast<int64_t>(i))];
    return constant(param.name, shape, values.data());
  }
  // Adds a matrix from the weights file whose rows are divided by their lengths; rows of zeros stay.
  std::string unit_rows(const Param& param);
  void leave_out(const Param& param) { taken_.insert(param.name); }  // warn_of_unused() does not name it
  Names params(const std::vector<Param*>& params);

  // Flattens N x H x W x C to N x F, in ONNX's order.
  std::string flat(const std::string& name, const OnnxValue& x);

  // Names the last node's output as the output of the graph.
  void set_output(const std::string& name) { graph_.mutable_node(graph_.node_size() - 1)->set_output(0, name); }
  void warn_of_unused() const;

 private:
  onnx::TensorProto& add_tensor(const std::string& name, const Shape& shape, onnx::TensorProto::DataType type);
  std::string unused(std::string name);
  Tensor read(const Param& param);

  onnx::GraphProto& graph_;
  std::string path_;
  SafetensorsReader weights_;
  std::set<std::string> names_, taken_;
};

void set_attribute(onnx::NodeProto& node, const std::string& name, int64_t value);
void set_attribute(onnx::NodeProto& node, const std::string& name, double value);
void set_attribute(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values);

}  // namespace owt

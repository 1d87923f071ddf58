// An ONNX graph under construction, and the weights file for its constants.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layers/base/description.h"
#include "src/files/safetensors.h"
#include "src/system/files.h"
#include "src/train/weights.h"

namespace owt {

struct OnnxValue {
  std::string name;
  Shape shape;  // for one image: N x H x W x C or N x F here; N x C x H x W in the file
};

// A file beside an ONNX file for its large tensors, because an ONNX file holds 2 GB at most.
class OnnxData {
 public:
  explicit OnnxData(const std::string& onnx_file);

  // The values of this tensor follow, `bytes` of them.
  void begin(onnx::TensorProto& tensor, int64_t bytes);
  void write(const void* values, size_t bytes) { file_.write(values, bytes); }
  void close() { file_.close(); }

 private:
  std::string location_;  // its name in the ONNX file
  AtomicFileWriter file_;
  int64_t bytes_ = 0;
};

// y = factor * x + summand in each channel.
struct ChannelScaling {
  std::vector<double> factor, summand;
};

class OnnxGraph {
 public:
  using Names = std::vector<std::string>;
  using Integers = std::vector<int64_t>;

  // weights: a safetensors file. taken: names that no node of a layer may use. data: gets the large tensors; null: all
  // are in the graph. opset: the version of operators. clips: every output of a relu will be clipped to the range of
  // its layer (export_int8.h). The graph and data must outlive this.
  OnnxGraph(onnx::GraphProto& graph, const std::string& weights, std::set<std::string> taken, OnnxData* data, int opset,
            bool clips)
      : graph_(graph),
        path_(weights),
        weights_(weights),
        names_(std::move(taken)),
        data_(data),
        opset_(opset),
        clips_(clips) {}

  int opset() const { return opset_; }
  bool clips() const { return clips_; }

  // Adds a node named after its layer; returns it so that attributes can be set.
  onnx::NodeProto& add(const std::string& type, const std::string& name, const Names& inputs);

  // These add constants and return their names.
  std::string constant(const std::string& name, const Shape& shape, const float* values);
  std::string constant(const std::string& name, const Integers& values);
  std::string constant(const std::string& name, float value);
  std::string constant(const std::string& name, const Shape& shape, onnx::TensorProto::DataType type,
                       const void* values, int64_t bytes);
  // Adds a parameter from the weights file, in ONNX's order, as a constant of this shape.
  std::string param(const Param& param, const Shape& shape);
  // Adds a parameter in another order: the value at i is the parameter's value at from(i).
  template <class From>
  std::string param(const Param& param, const Shape& shape, const From& from) {
    const std::vector<float> in_order = values(param);
    std::vector<float> reordered(in_order.size());
    for (size_t i = 0; i < reordered.size(); ++i)
      reordered[i] = in_order[static_cast<size_t>(from(static_cast<int64_t>(i)))];
    return constant(param.name, shape, reordered.data());
  }
  // Adds a matrix from the weights file whose rows are divided by their lengths; rows of zeros stay.
  std::string unit_rows(const Param& param);
  void leave_out(const Param& param) { taken_.insert(param.name); }  // warn_of_unused() does not name it
  Names params(const std::vector<Param*>& params);
  // What a batch normalisation computes in evaluation, from the weights file.
  ChannelScaling normalisation(const Described& norm);
  // Adds the weight of a layer whose outputs are scaled, and its bias, which has this name.
  Names scaled_params(const std::vector<Param*>& params, const ChannelScaling& by, const std::string& bias);

  // Flattens N x H x W x C to N x F, in ONNX's order.
  std::string flat(const std::string& name, const OnnxValue& x);

  // Names the last node's output as the output of the graph.
  void set_output(const std::string& name);
  // Names it after a layer that the last node includes.
  std::string rename_output(const std::string& layer);
  void warn_of_unused() const;

  // The value is the output of this layer, unless it is known as the output of a layer before it.
  void record(const std::string& value, const std::string& layer) { layers_.emplace(value, layer); }
  const std::map<std::string, std::string>& layers() const { return layers_; }  // by recorded value
  std::string unused(std::string name);  // reserves this name, or a longer one if it is taken

 private:
  onnx::TensorProto& add_tensor(const std::string& name, const Shape& shape, onnx::TensorProto::DataType type);
  void add_values(onnx::TensorProto& tensor, const void* values, int64_t bytes);
  std::vector<float> values(const Param& param);
  void read(const Param& param, const std::function<void(const Tensor& rows)>& visit);

  onnx::GraphProto& graph_;
  std::string path_;
  SafetensorsReader weights_;
  std::set<std::string> names_, taken_;
  std::map<std::string, std::string> layers_;
  OnnxData* data_;
  int opset_;
  bool clips_;
};

void set_attribute(onnx::NodeProto& node, const std::string& name, int64_t value);
void set_attribute(onnx::NodeProto& node, const std::string& name, double value);
void set_attribute(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values);

}  // namespace owt

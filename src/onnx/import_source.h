// An ONNX graph for reading: the node that makes a value, the constants, and the order in which values are computed.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace owt {

struct OnnxConstant {
  std::vector<int64_t> dims;
  std::vector<float> values;      // if its type is f32, f64, f16 or bf16
  std::vector<int64_t> integers;  // if its type is i32 or i64

  int64_t elements() const { return static_cast<int64_t>(std::max(values.size(), integers.size())); }
};

// Floats in another order: dimension d of the result is dimension axes[d].
OnnxConstant transposed(OnnxConstant from, const std::vector<int64_t>& axes);

class OnnxSource {
 public:
  // Throws Error for a file that is no ONNX model, and for a graph whose nodes use values before they are computed.
  explicit OnnxSource(const std::string& path);

  const onnx::GraphProto& graph() const { return model_.graph(); }
  const onnx::ModelProto& model() const { return model_; }
  const std::string& input() const { return input_; }  // the graph's only input

  // Null for the input of the graph and for constants.
  const onnx::NodeProto* maker(const std::string& value) const;
  bool is_constant(const std::string& value) const { return constants_.contains(value); }
  // Whether a constant is a parameter; others are numbers in the program that wrote the file.
  bool is_parameter(const std::string& value) const;
  OnnxConstant constant(const std::string& value, int depth = 0) const;
  // The inputs from which a node computes its output, without constants and without the shapes of a Reshape.
  std::vector<std::string> inputs(const onnx::NodeProto& node) const;
  // The last value that all these values are computed from: their lowest common ancestor in the tree of dominators.
  std::string meeting_point(const std::vector<std::string>& values) const;
  // The value directly below `ancestor` in that tree on the way to `value`; `value` itself if both are equal.
  std::string below(const std::string& ancestor, const std::string& value) const;

  [[noreturn]] void refuse(const onnx::NodeProto& node, const std::string& why) const;

 private:
  void nest_concatenations();
  void add(const onnx::NodeProto& node);
  OnnxConstant read(const onnx::TensorProto& tensor) const;
  std::string bytes_of(const onnx::TensorProto& tensor, int64_t bytes) const;

  std::string path_;
  onnx::ModelProto model_;
  std::string input_;
  std::map<std::string, const onnx::TensorProto*> tensors_;
  std::map<std::string, const onnx::NodeProto*> makers_;
  std::set<std::string> constants_;
  struct Above {
    std::string value;  // the closest value that all ways to this one pass through
    int depth;
  };
  std::map<std::string, Above> above_;  // for every value that depends on the input
};

// Attributes; `otherwise` if the node has none.
int64_t attribute_of(const onnx::NodeProto& node, const std::string& name, int64_t otherwise);
float attribute_of(const onnx::NodeProto& node, const std::string& name, float otherwise);
std::string attribute_of(const onnx::NodeProto& node, const std::string& name, const std::string& otherwise);
std::vector<int64_t> attribute_of(const onnx::NodeProto& node, const std::string& name,
                                  const std::vector<int64_t>& otherwise);

}  // namespace owt

#include "src/onnx/import_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "src/files/safetensors_header.h"
#include "src/system/check.h"
#include "src/system/input_file.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The safetensors name of a type of elements, for its conversion to f32; null for other types.
const char* float_type(int type) {
  switch (type) {
    case onnx::TensorProto::FLOAT:
      return "F32";
    case onnx::TensorProto::DOUBLE:
      return "F64";
    case onnx::TensorProto::FLOAT16:
      return "F16";
    case onnx::TensorProto::BFLOAT16:
      return "BF16";
    default:
      return nullptr;
  }
}

constexpr int64_t kMostBytes = int64_t{1} << 40;  // a tensor's
constexpr int kMostSteps = 100;                   // between a constant and the tensor that it is computed from

int64_t elements_of(const std::vector<int64_t>& dims, const std::string& name) {
  int64_t elements = 1;
  for (const int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements) || elements > kMostBytes / 8)
      fail("the shape of '", name, "' is damaged");
  return elements;
}

template <class T>
std::vector<T> as(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

bool is_permutation_of(std::vector<int64_t> axes, size_t rank) {
  std::sort(axes.begin(), axes.end());
  for (size_t d = 0; d < axes.size(); ++d)
    if (axes[d] != static_cast<int64_t>(d)) return false;
  return axes.size() == rank;
}

// The dimensions `wanted`, one of which may be -1: as many as needed. Empty: they do not fit.
std::vector<int64_t> reshaped(const OnnxConstant& from, std::vector<int64_t> wanted) {
  int64_t known = 1, *open = nullptr;
  for (int64_t& dim : wanted)
    if (dim == -1 && !open)
      open = &dim;
    else if (dim < 1 || __builtin_mul_overflow(known, dim, &known))
      return {};
  if (open && from.elements() % known == 0) *open = from.elements() / known;
  return known * (open ? *open : 1) == from.elements() ? wanted : std::vector<int64_t>{};
}

const onnx::AttributeProto* find(const onnx::NodeProto& node, const std::string& name) {
  for (const onnx::AttributeProto& attribute : node.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

}  // namespace

OnnxConstant transposed(OnnxConstant from, const std::vector<int64_t>& axes) {
  const size_t rank = from.dims.size();
  std::vector<int64_t> strides(rank, 1), dims(rank), steps(rank);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * from.dims[d];
  for (size_t d = 0; d < rank; ++d) {
    dims[d] = from.dims[static_cast<size_t>(axes[d])];
    steps[d] = strides[static_cast<size_t>(axes[d])];
  }
  std::vector<float> values(from.values.size());
  std::vector<int64_t> at(rank);
  for (float& value : values) {
    int64_t element = 0;
    for (size_t d = 0; d < rank; ++d) element += at[d] * steps[d];
    value = from.values[static_cast<size_t>(element)];
    for (size_t d = rank; d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
  return {dims, std::move(values), {}};
}

int64_t attribute_of(const onnx::NodeProto& node, const std::string& name, int64_t otherwise) {
  const onnx::AttributeProto* found = find(node, name);
  return found ? found->i() : otherwise;
}

float attribute_of(const onnx::NodeProto& node, const std::string& name, float otherwise) {
  const onnx::AttributeProto* found = find(node, name);
  return found ? found->f() : otherwise;
}

std::string attribute_of(const onnx::NodeProto& node, const std::string& name, const std::string& otherwise) {
  const onnx::AttributeProto* found = find(node, name);
  return found ? found->s() : otherwise;
}

std::vector<int64_t> attribute_of(const onnx::NodeProto& node, const std::string& name,
                                  const std::vector<int64_t>& otherwise) {
  const onnx::AttributeProto* found = find(node, name);
  return found ? std::vector<int64_t>(found->ints().begin(), found->ints().end()) : otherwise;
}

OnnxSource::OnnxSource(const std::string& path) : path_(path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, ": ", std::strerror(errno));
  if (!model_.ParseFromIstream(&file) || model_.graph().node_size() == 0)
    fail(path, ": is no ONNX model, or a damaged one");
  for (const onnx::TensorProto& tensor : graph().initializer()) {
    tensors_[tensor.name()] = &tensor;
    constants_.insert(tensor.name());
  }
  for (const onnx::ValueInfoProto& input : graph().input()) {
    if (is_constant(input.name())) continue;
    if (!input_.empty())
      fail(path, ": the graph has the inputs '", input_, "' and '", input.name(), "'; owt's networks have one");
    input_ = input.name();
  }
  if (input_.empty()) fail(path, ": the graph has no input");
  above_[input_] = {input_, 0};
  nest_concatenations();
  for (const onnx::NodeProto& node : graph().node()) add(node);
}

// DenseNet concatenates x0 and x1, then x0, x1 and x2, and so on. The second is a concatenation of the first and x2.
void OnnxSource::nest_concatenations() {
  std::map<std::vector<std::string>, std::string> made;  // the output for these inputs
  for (onnx::NodeProto& node : *model_.mutable_graph()->mutable_node()) {
    if (node.op_type() != "Concat" || node.output_size() != 1 || attribute_of(node, "axis", int64_t{1}) != 1) continue;
    const std::vector<std::string> inputs(node.input().begin(), node.input().end());
    for (std::vector<std::string> first = inputs; first.size() > 2;) {
      first.pop_back();
      const auto found = made.find(first);
      if (found == made.end()) continue;
      node.clear_input();
      node.add_input(found->second);
      for (size_t i = first.size(); i < inputs.size(); ++i) node.add_input(inputs[i]);
      break;
    }
    made.emplace(inputs, node.output(0));
  }
}

void OnnxSource::add(const onnx::NodeProto& node) {
  for (const std::string& input : node.input())
    if (!input.empty() && !is_constant(input) && !above_.contains(input))
      refuse(node, concat("uses the value '", input, "' before a node computes it"));
  const std::vector<std::string> from = inputs(node);
  for (const std::string& output : node.output()) {
    if (output.empty()) continue;
    if (is_constant(output) || !makers_.emplace(output, &node).second || output == input_)
      refuse(node, concat("computes the value '", output, "', which exists already"));
    if (from.empty())
      constants_.insert(output);
    else
      above_[output] = {meeting_point(from), above_.at(meeting_point(from)).depth + 1};
  }
}

const onnx::NodeProto* OnnxSource::maker(const std::string& value) const {
  const auto found = makers_.find(value);
  return found == makers_.end() || is_constant(value) ? nullptr : found->second;
}

bool OnnxSource::is_parameter(const std::string& value) const {
  std::string source = value;
  for (auto made = makers_.find(source); made != makers_.end(); made = makers_.find(source)) {
    if (made->second->input_size() == 0) return false;
    source = made->second->input(0);
  }
  return tensors_.contains(source);
}

std::vector<std::string> OnnxSource::inputs(const onnx::NodeProto& node) const {
  const bool one = node.op_type() == "Reshape" || node.op_type() == "Expand";
  std::vector<std::string> found;
  for (const std::string& input : node.input()) {
    if (!input.empty() && !is_constant(input)) found.push_back(input);
    if (one) break;
  }
  return found;
}

std::string OnnxSource::meeting_point(const std::vector<std::string>& values) const {
  std::string meeting = values.front();
  for (std::string value : values)
    while (meeting != value) {
      std::string& deeper = above_.at(meeting).depth > above_.at(value).depth ? meeting : value;
      deeper = above_.at(deeper).value;
    }
  return meeting;
}

std::string OnnxSource::below(const std::string& ancestor, const std::string& value) const {
  std::string at = value;
  while (at != ancestor && above_.at(at).value != ancestor) at = above_.at(at).value;
  return at;
}

OnnxConstant OnnxSource::constant(const std::string& value, int depth) const {
  if (const auto found = tensors_.find(value); found != tensors_.end()) return read(*found->second);
  OWT_CHECK(is_constant(value), "'", value, "' is no constant");
  const onnx::NodeProto& node = *makers_.at(value);
  const std::string& op = node.op_type();
  if (op == "Constant") {
    if (const onnx::AttributeProto* tensor = find(node, "value")) return read(tensor->t());
    if (find(node, "value_float")) return {{}, {attribute_of(node, "value_float", 0.0f)}, {}};
    if (find(node, "value_int")) return {{}, {}, {attribute_of(node, "value_int", int64_t{0})}};
    std::vector<int64_t> integers = attribute_of(node, "value_ints", std::vector<int64_t>{});
    const auto count = static_cast<int64_t>(integers.size());
    return {{count}, {}, std::move(integers)};
  }
  if (node.input_size() == 0 || depth == kMostSteps) refuse(node, "is no constant that owt can compute");
  OnnxConstant from = constant(node.input(0), depth + 1);
  if (op == "Identity") return from;
  if (op == "Reshape" && node.input_size() > 1) {
    from.dims = reshaped(from, constant(node.input(1), depth + 1).integers);
    if (from.dims.empty()) refuse(node, "makes a shape of other numbers of elements");
    return from;
  }
  if (op == "Transpose") {
    std::vector<int64_t> axes;
    for (int64_t d = std::ssize(from.dims); d-- > 0;) axes.push_back(d);
    axes = attribute_of(node, "perm", axes);
    if (!is_permutation_of(axes, from.dims.size()) || from.values.empty()) refuse(node, "has a damaged 'perm'");
    return transposed(std::move(from), axes);
  }
  refuse(node, "is no constant that owt can compute");
}

void OnnxSource::refuse(const onnx::NodeProto& node, const std::string& why) const {
  const std::string name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  fail(path_, ": node '", name, "', ", node.op_type(), ", ", why);
}

OnnxConstant OnnxSource::read(const onnx::TensorProto& tensor) const {
  OnnxConstant out{{tensor.dims().begin(), tensor.dims().end()}, {}, {}};
  const int64_t elements = elements_of(out.dims, tensor.name());
  const auto count = static_cast<size_t>(elements);
  const auto check = [&](size_t found) {
    if (found != count) fail(path_, ": '", tensor.name(), "' has ", found, " values, wanted ", count);
  };
  const bool raw = tensor.has_raw_data() || tensor.data_location() == onnx::TensorProto::EXTERNAL;
  if (const char* name = float_type(tensor.data_type())) {
    const SafetensorsType& type = *safetensors_type(name);
    if (raw) {
      const std::string bytes = bytes_of(tensor, elements * static_cast<int64_t>(type.bytes));
      check(bytes.size() / type.bytes);
      out.values.resize(count);
      type.convert(reinterpret_cast<const std::byte*>(bytes.data()), elements, out.values.data());
    } else {
      for (const float value : tensor.float_data()) out.values.push_back(value);
      for (const double value : tensor.double_data()) out.values.push_back(static_cast<float>(value));
      check(out.values.size());
    }
    return out;
  }
  const bool wide = tensor.data_type() == onnx::TensorProto::INT64;
  if (!wide && tensor.data_type() != onnx::TensorProto::INT32)
    fail(path_, ": '", tensor.name(), "' has elements of type ", onnx::TensorProto::DataType_Name(tensor.data_type()),
         ", wanted floats or integers of 32 or 64 bits");
  if (raw) {
    const std::string bytes = bytes_of(tensor, elements * (wide ? 8 : 4));
    if (wide)
      out.integers = as<int64_t>(bytes);
    else
      for (const int32_t value : as<int32_t>(bytes)) out.integers.push_back(value);
  } else {
    for (const int64_t value : tensor.int64_data()) out.integers.push_back(value);
    for (const int32_t value : tensor.int32_data()) out.integers.push_back(value);
  }
  check(out.integers.size());
  return out;
}

// Large tensors are in a file beside the model (ONNX, docs/ExternalData.md).
std::string OnnxSource::bytes_of(const onnx::TensorProto& tensor, int64_t bytes) const {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return tensor.raw_data();
  std::map<std::string, std::string> place;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) place[entry.key()] = entry.value();
  const std::filesystem::path location = place["location"];
  if (location.empty() || location.has_parent_path())
    fail(path_, ": '", tensor.name(), "' is in the file '", location.string(),
         "', wanted a file in the folder of the model");
  const std::string path = (std::filesystem::path(path_).parent_path() / location).string();
  const InputFile file(path);
  if (!file.is_open()) fail(path, ": ", std::strerror(errno), "; '", tensor.name(), "' of ", path_, " is in it");
  const uint64_t offset = std::strtoull(place["offset"].c_str(), nullptr, 10);
  if (const auto size = static_cast<uint64_t>(std::max<int64_t>(file.size(), 0));
      offset > size || static_cast<uint64_t>(bytes) > size - offset)
    fail(path, ": ends before the values of '", tensor.name(), "'");
  std::string read(static_cast<size_t>(bytes), '\0');
  if (const std::string why = file.read(offset, std::span(read.data(), read.size())); !why.empty())
    fail(path, ": ", why);
  return read;
}

}  // namespace owt

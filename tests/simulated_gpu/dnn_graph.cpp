#include "tests/simulated_gpu/dnn_graph.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace simulated_gpu {

size_t GraphTensor::bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < 4; ++i) last += (extents[i] - 1) * strides[i];
  return static_cast<size_t>(last + 1) * bytes_of(type);
}

std::string OperationGraph::text() const {
  nlohmann::json json;
  for (const auto& [id, tensor] : tensors)
    json["tensors"].push_back({{"id", id},
                               {"type", static_cast<int>(tensor.type)},
                               {"extents", tensor.extents},
                               {"strides", tensor.strides},
                               {"alignment", tensor.alignment},
                               {"inside", tensor.inside},
                               {"by_value", tensor.by_value}});
  for (const GraphOperation& operation : operations) {
    const ConvolutionSettings& convolution = operation.convolution;
    json["operations"].push_back({{"kind", static_cast<int>(operation.kind)},
                                  {"mode", operation.mode},
                                  {"tensors", operation.tensors},
                                  {"before", convolution.before},
                                  {"after", convolution.after},
                                  {"strides", convolution.strides},
                                  {"dilations", convolution.dilations},
                                  {"flipped", convolution.flipped},
                                  {"alpha", operation.alpha},
                                  {"beta", operation.beta},
                                  {"deterministic", operation.deterministic}});
  }
  return json.dump();
}

OperationGraph OperationGraph::from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  OperationGraph graph;
  for (const auto& item : json.at("tensors")) {
    GraphTensor tensor;
    tensor.id = item.at("id");
    tensor.type = static_cast<ElementType>(item.at("type").get<int>());
    tensor.extents = item.at("extents");
    tensor.strides = item.at("strides");
    tensor.alignment = item.at("alignment");
    tensor.inside = item.at("inside");
    tensor.by_value = item.at("by_value");
    graph.tensors[tensor.id] = tensor;
  }
  for (const auto& item : json.at("operations")) {
    GraphOperation operation;
    operation.kind = static_cast<cudnnBackendDescriptorType_t>(item.at("kind").get<int>());
    operation.mode = item.at("mode");
    operation.tensors = item.at("tensors").get<std::map<int, int64_t>>();
    operation.convolution = {item.at("before"), item.at("after"), item.at("strides"), item.at("dilations"),
                             item.at("flipped")};
    operation.alpha = item.at("alpha");
    operation.beta = item.at("beta");
    operation.deterministic = item.at("deterministic");
    graph.operations.push_back(operation);
  }
  return graph;
}

std::string OperationGraph::unsupported() const {
  for (const auto& [id, tensor] : tensors)
    if (tensor.type == ElementType::kNone) return "a data type other than FLOAT and BFLOAT16";
  bool norm_backward = false;
  for (const GraphOperation& operation : operations) {
    norm_backward = norm_backward || operation.kind == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR;
    if (operation.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
      const auto type = [&](int attribute) { return tensors.at(operation.tensors.at(attribute)).type; };
      if (type(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW) != type(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X))
        return "a filter gradient of another type than its input";
    }
    if (operation.kind != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) continue;
    switch (operation.mode) {
      case CUDNN_POINTWISE_ADD:
      case CUDNN_POINTWISE_MUL:
      case CUDNN_POINTWISE_IDENTITY:
      case CUDNN_POINTWISE_RELU_FWD:
      case CUDNN_POINTWISE_RELU_BWD:
        break;
      default:
        return "this pointwise mode";
    }
  }
  for (const GraphOperation& operation : operations) {
    if (operations.size() == 1 || operation.kind != CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
      continue;
    const auto channels = [&](int attribute) { return tensors.at(operation.tensors.at(attribute)).extents[1]; };
    const int64_t x = channels(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
    if (channels(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W) != x) return "an operation after a gradient with groups";
    if (x % 4 != 0 || channels(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY) % 4 != 0)
      return "an operation after a gradient whose channels are no multiples of 4";
  }
  return norm_backward && operations.size() > 1 ? "an operation beside NORM_BACKWARD" : "";
}

namespace {

// Engine 2 needs much memory and tensor cores. Engine 3 sums in varying order. Engines from 4 on are compiled.
const std::vector<Engine>& engines() {
  static const std::vector<Engine> engines{
      {0, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, 0, false, true, false, true},
      {1, {}, 0, false, false, false, false},
      {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 3 << 19, true, true, false, true},
      {3, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 256, false, true, true, true},
      {4, {}, 0, false, true, false, true, true},
      {5, {}, 0, false, true, false, true, true},
      {6, {}, 0, false, true, false, true, true},
  };
  return engines;
}

bool has(const OperationGraph& graph, cudnnBackendDescriptorType_t kind) {
  return std::any_of(graph.operations.begin(), graph.operations.end(),
                     [&](const GraphOperation& operation) { return operation.kind == kind; });
}

}  // namespace

const Engine* engine_with(int64_t index) {
  return index >= 0 && index < static_cast<int64_t>(engines().size()) ? &engines()[static_cast<size_t>(index)]
                                                                      : nullptr;
}

const std::vector<int64_t>& engines_for(const OperationGraph& graph, cudnnBackendHeurMode_t mode) {
  static const std::vector<int64_t> best{3, 2, 1}, fallback{0, 4}, mixed{4, 3, 5, 2, 6, 1}, compiled{4, 5, 6}, none;
  const bool fused_gradient =
      has(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) && graph.operations.size() > 1;
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return fused_gradient ? none : fallback;
  if (mode != CUDNN_HEUR_MODE_A && mode != CUDNN_HEUR_MODE_B && mode != CUDNN_HEUR_MODE_INSTANT) return none;
  const bool norm = has(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR) ||
                    has(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
  return fused_gradient ? compiled : norm ? mixed : best;
}

}  // namespace simulated_gpu

// The checks and results of finalizing a cuDNN descriptor.
#include "tests/simulated_gpu/dnn_descriptors.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

namespace simulated_gpu {
namespace {

void require(bool condition, cudnnStatus_t status, const std::string& words) {
  if (!condition) throw DnnError{status, words};
}

void finalize_tensor(const Descriptor& d) {
  const auto extents = d.values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = d.values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  require(extents.size() == strides.size(), CUDNN_STATUS_BAD_PARAM, "as many strides as dimensions");
  require(std::all_of(extents.begin(), extents.end(), [](int64_t extent) { return extent > 0; }),
          CUDNN_STATUS_BAD_PARAM, "dimensions of a tensor are at least 1");
}

void finalize_convolution(const Descriptor& d) {
  const auto dims = d.value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  for (const int name : {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                         CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
    require(d.attributes.at(name).count == dims, CUDNN_STATUS_BAD_PARAM, "one value for each spatial dimension");
}

ElementType element_type(const Descriptor& tensor) {
  const auto type = tensor.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  return type == CUDNN_DATA_FLOAT      ? ElementType::kF32
         : type == CUDNN_DATA_BFLOAT16 ? ElementType::kBf16
                                       : ElementType::kNone;
}

GraphTensor graph_tensor(const Descriptor& d) {
  const auto extents = d.values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = d.values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  require(extents.size() == 4, CUDNN_STATUS_NOT_SUPPORTED, "only tensors of four dimensions are simulated");
  GraphTensor tensor;
  tensor.id = d.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  tensor.type = element_type(d);
  std::copy(extents.begin(), extents.end(), tensor.extents.begin());
  std::copy(strides.begin(), strides.end(), tensor.strides.begin());
  tensor.alignment = d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  tensor.inside = d.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  tensor.by_value = d.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && d.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  return tensor;
}

ConvolutionSettings convolution_settings(const Descriptor& d) {
  const auto pair = [&](int name) {
    const auto values = d.values<int64_t>(name);
    require(values.size() == 2, CUDNN_STATUS_NOT_SUPPORTED, "only convolutions of two dimensions are simulated");
    return std::array<int64_t, 2>{values[0], values[1]};
  };
  return {pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), pair(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
          pair(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), pair(CUDNN_ATTR_CONVOLUTION_DILATIONS),
          d.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION};
}

// The attributes of a convolution operation, by its kind.
struct ConvolutionNames {
  int x, w, y, settings, alpha, beta;
};

const ConvolutionNames* convolution_names(cudnnBackendDescriptorType_t kind) {
  static const ConvolutionNames forward{
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  static const ConvolutionNames data{
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  static const ConvolutionNames filter{
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  switch (kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return &forward;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return &data;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return &filter;
    default:
      return nullptr;
  }
}

void finalize_convolution_operation(const Descriptor& d, const ConvolutionNames& names) {
  const ConvolutionSettings settings = convolution_settings(d.child(names.settings));
  const GraphTensor x = graph_tensor(d.child(names.x)), w = graph_tensor(d.child(names.w)),
                    y = graph_tensor(d.child(names.y));
  bool fits = x.extents[0] == y.extents[0] && x.extents[1] % w.extents[1] == 0 && y.extents[1] == w.extents[0];
  fits = fits && w.extents[0] % (x.extents[1] / w.extents[1]) == 0;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t padded = x.extents[2 + i] + settings.before[i] + settings.after[i];
    const int64_t window = settings.dilations[i] * (w.extents[2 + i] - 1) + 1;
    fits = fits && padded >= window && y.extents[2 + i] == (padded - window) / settings.strides[i] + 1;
  }
  require(fits, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the shapes of a convolution do not fit together");
}

void finalize_pointwise_operation(const Descriptor& d) {
  const auto mode =
      d.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const bool backward = mode >= CUDNN_POINTWISE_RELU_BWD && mode < CUDNN_POINTWISE_CMP_EQ;
  const bool two = mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL;
  require(!two || d.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), CUDNN_STATUS_BAD_PARAM, "this mode needs BDESC");
  require(backward || d.has(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), CUDNN_STATUS_BAD_PARAM, "this mode needs YDESC");
  require(!backward || (d.has(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) && d.has(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC)),
          CUDNN_STATUS_BAD_PARAM, "this mode needs DXDESC and DYDESC");
}

void finalize_norm(const Descriptor& d, int mode, int x, std::vector<int> per_channel) {
  require(d.value<cudnnBackendNormMode_t>(mode) == CUDNN_BATCH_NORM, CUDNN_STATUS_NOT_SUPPORTED,
          "only batch normalisation is simulated");
  const int64_t channels = graph_tensor(d.child(x)).extents[1];
  for (const int name : per_channel) {
    if (!d.has(name)) continue;
    const GraphTensor tensor = graph_tensor(d.child(name));
    require(tensor.extents == Extents{1, channels, 1, 1}, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
            "statistics have one value per channel");
    require(tensor.type == ElementType::kF32, CUDNN_STATUS_NOT_SUPPORTED, "statistics are FLOAT");
  }
}

void finalize_norm_forward(const Descriptor& d) {
  require(d.value<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) == CUDNN_NORM_FWD_TRAINING,
          CUDNN_STATUS_NOT_SUPPORTED, "only normalisation in training is simulated");
  finalize_norm(
      d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
      {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
       CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
       CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
       CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC});
  const int running[] = {
      CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
      CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
      CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC};
  const auto set = std::count_if(std::begin(running), std::end(running), [&](int name) { return d.has(name); });
  require(set == 0 || set == 5, CUDNN_STATUS_BAD_PARAM, "running statistics are given all or not at all");
}

bool is_output(int name) {
  switch (name) {
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW:
    case CUDNN_ATTR_OPERATION_POINTWISE_YDESC:
    case CUDNN_ATTR_OPERATION_POINTWISE_DXDESC:
    case CUDNN_ATTR_OPERATION_REDUCTION_YDESC:
    case CUDNN_ATTR_OPERATION_NORM_FWD_YDESC:
      return true;
    default:
      return false;
  }
}

GraphOperation graph_operation(const Descriptor& d, OperationGraph* graph) {
  GraphOperation operation;
  operation.kind = d.type;
  for (const auto& [name, attribute] : d.attributes) {
    if (attribute.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
    const Descriptor& child = *attribute.children.front();
    if (child.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
    const GraphTensor tensor = graph_tensor(child);
    graph->tensors[tensor.id] = tensor;
    operation.tensors[name] = tensor.id;
  }
  if (d.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
    operation.mode =
        d.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  if (d.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    const Descriptor& reduction = d.child(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    operation.deterministic =
        reduction.has(kReductionIsDeterministic) && reduction.value<bool>(kReductionIsDeterministic);
  }
  if (const ConvolutionNames* names = convolution_names(d.type)) {
    operation.convolution = convolution_settings(d.child(names->settings));
    operation.alpha = d.value<float>(names->alpha);
    operation.beta = d.value<float>(names->beta);
  }
  return operation;
}

// Sorts producers before consumers, whatever their order was.
void sort_operations(OperationGraph* graph) {
  std::vector<GraphOperation> sorted, rest = std::move(graph->operations);
  std::set<int64_t> made, awaited;
  for (const auto& [id, tensor] : graph->tensors)
    if (tensor.inside) awaited.insert(id);
  for (const GraphOperation& operation : rest)
    for (const auto& [name, id] : operation.tensors)
      if (is_output(name)) awaited.insert(id);
  while (!rest.empty()) {
    const auto ready = std::find_if(rest.begin(), rest.end(), [&](const GraphOperation& operation) {
      return std::all_of(operation.tensors.begin(), operation.tensors.end(), [&](const auto& item) {
        return is_output(item.first) || awaited.count(item.second) == 0 || made.count(item.second) > 0;
      });
    });
    require(ready != rest.end(), CUDNN_STATUS_BAD_PARAM, "a virtual tensor that no operation writes");
    for (const auto& [name, id] : ready->tensors)
      if (is_output(name)) made.insert(id);
    sorted.push_back(*ready);
    rest.erase(ready);
  }
  graph->operations = std::move(sorted);
}

void finalize_graph(Descriptor& d) {
  auto graph = std::make_shared<OperationGraph>();
  for (const auto& operation : d.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).children)
    graph->operations.push_back(graph_operation(*operation, graph.get()));
  require(!graph->operations.empty(), CUDNN_STATUS_BAD_PARAM, "a graph of no operations");
  sort_operations(graph.get());
  d.graph = std::move(graph);
}

std::shared_ptr<Descriptor> finalized(cudnnBackendDescriptorType_t type,
                                      const std::shared_ptr<const OperationGraph>& graph, const Engine* engine) {
  auto made = std::make_shared<Descriptor>();
  made->type = type;
  made->finalized = true;
  made->graph = graph;
  made->engine = engine;
  return made;
}

template <class T>
Attribute values_attribute(cudnnBackendAttributeType_t type, const std::vector<T>& values) {
  Attribute attribute{type, static_cast<int64_t>(values.size()), std::vector<std::byte>(values.size() * sizeof(T)), {}};
  if (!values.empty()) std::memcpy(attribute.bytes.data(), values.data(), attribute.bytes.size());
  return attribute;
}

std::shared_ptr<Descriptor> configuration(const std::shared_ptr<const OperationGraph>& graph, const Engine* engine) {
  auto of_engine = finalized(CUDNN_BACKEND_ENGINE_DESCRIPTOR, graph, engine);
  of_engine->attributes[CUDNN_ATTR_ENGINE_GLOBAL_INDEX] =
      values_attribute(CUDNN_TYPE_INT64, std::vector<int64_t>{engine->index});
  of_engine->attributes[CUDNN_ATTR_ENGINE_NUMERICAL_NOTE] = values_attribute(CUDNN_TYPE_NUMERICAL_NOTE, engine->notes);
  std::vector<cudnnBackendBehaviorNote_t> behaviour;
  if (engine->compiled) behaviour.push_back(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
  of_engine->attributes[CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE] = values_attribute(CUDNN_TYPE_BEHAVIOR_NOTE, behaviour);
  auto made = finalized(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, graph, engine);
  made->attributes[CUDNN_ATTR_ENGINECFG_ENGINE] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {of_engine}};
  made->attributes[CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE] =
      values_attribute(CUDNN_TYPE_INT64, std::vector<int64_t>{engine->workspace});
  return made;
}

void finalize_heuristics(Descriptor& d) {
  d.graph = d.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).graph;
  const std::string reason = d.graph->unsupported();
  require(reason.empty(), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "no engine knows " + reason);
  Attribute results{CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, {}, {}};
  for (const int64_t index : engines_for(*d.graph, d.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)))
    results.children.push_back(configuration(d.graph, engine_with(index)));
  require(!results.children.empty(), CUDNN_STATUS_NOT_SUPPORTED, "no engine in this mode");
  results.count = static_cast<int64_t>(results.children.size());
  d.attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS] = std::move(results);
}

size_t checksum(const std::string& graph, int64_t engine) {
  return std::hash<std::string>()(graph + "/" + std::to_string(engine));
}

void read_plan(Descriptor& d) {
  const auto text = d.values<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  try {
    const auto json = nlohmann::json::parse(text.begin(), text.end());
    const std::string graph = json.at("graph");
    d.engine = engine_with(json.at("engine"));
    require(d.engine && json.at("checksum") == checksum(graph, d.engine->index), CUDNN_STATUS_BAD_PARAM,
            "the plan's JSON is damaged");
    require(json.at("version") == CUDNN_VERSION, CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH,
            "the plan is of another version");
    d.graph = std::make_shared<const OperationGraph>(OperationGraph::from_text(graph));
  } catch (const nlohmann::json::exception&) {
    throw DnnError{CUDNN_STATUS_BAD_PARAM, "the plan's JSON is damaged"};
  }
}

void finalize_plan(Descriptor& d) {
  const bool has_handle = d.has(400), has_device = d.has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  require(has_handle || has_device, CUDNN_STATUS_BAD_PARAM, "a plan needs a handle or device properties");
  if (d.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)) {
    d.graph = d.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).graph;
    d.engine = d.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine;
  } else {
    require(d.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION), CUDNN_STATUS_BAD_PARAM,
            "a plan needs an engine configuration or a JSON representation");
    read_plan(d);
  }
  d.attributes[CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE] =
      values_attribute(CUDNN_TYPE_INT64, std::vector<int64_t>{d.engine->workspace});
  const std::string text = plan_text(d);
  d.attributes[CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION] =
      values_attribute(CUDNN_TYPE_CHAR, std::vector<char>(text.begin(), text.end()));
}

void finalize_pack(const Descriptor& d) {
  const auto ids = d.values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  require(d.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count == static_cast<int64_t>(ids.size()),
          CUDNN_STATUS_BAD_PARAM, "one pointer for each id");
  require(std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size(), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
          "an id twice");
}

}  // namespace

std::string plan_text(const Descriptor& plan) {
  const std::string graph = plan.graph->text();
  return nlohmann::json{{"version", CUDNN_VERSION},
                        {"engine", plan.engine->index},
                        {"graph", graph},
                        {"checksum", checksum(graph, plan.engine->index)}}
      .dump();
}

void finalize(Descriptor& d) {
  require(!d.finalized, CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  for (const AttributeRule& rule : attribute_rules())
    require(rule.descriptor != d.type || !rule.required || d.has(rule.name), CUDNN_STATUS_BAD_PARAM,
            "attribute " + std::to_string(rule.name) + " is not set");
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      finalize_tensor(d);
      break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      finalize_convolution(d);
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      finalize_pointwise_operation(d);
      break;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      require(d.value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD,
              CUDNN_STATUS_NOT_SUPPORTED, "only reductions by ADD are simulated");
      break;
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
      finalize_norm_forward(d);
      break;
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
      finalize_norm(d, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,
                    {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
                     CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
                     CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC});
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      finalize_graph(d);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      finalize_heuristics(d);
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      finalize_plan(d);
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      finalize_pack(d);
      break;
    default:
      if (const ConvolutionNames* names = convolution_names(d.type)) finalize_convolution_operation(d, *names);
      break;
  }
  d.finalized = true;
}

}  // namespace simulated_gpu

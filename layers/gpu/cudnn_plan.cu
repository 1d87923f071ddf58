#include "layers/gpu/cudnn_plan.h"

#include <algorithm>
#include <vector>

#include "src/core/cuda.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr uintptr_t kTensorAlignment = 16;  // bytes; promised by the tensor descriptors

// The properties of an engine that matter here.
struct Engine {
  bool deterministic = true, tensor_cores = false, rounds_inputs = false, compiled = false;

  explicit Engine(const CudnnDescriptor& configuration) {
    CudnnDescriptor engine[] = {CudnnDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR)};
    OWT_CHECK_EQ(configuration.fill(CUDNN_ATTR_ENGINECFG_ENGINE, engine), 1);
    for (const auto note :
         engine[0].enums<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE)) {
      deterministic = deterministic && note != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      tensor_cores = tensor_cores || note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
      rounds_inputs = rounds_inputs || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    }
    for (const auto note :
         engine[0].enums<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE))
      compiled = compiled || note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  }

  bool allowed(const PlanRules& rules) const {
    return (deterministic || !rules.deterministic) && (!tensor_cores || rules.tensor_cores) && !rounds_inputs;
  }
};

// Empty if the mode has no configuration for the graph.
std::vector<CudnnDescriptor> configurations(const PlanTarget& target, const CudnnDescriptor& operation_graph,
                                            cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics = target.heuristics(operation_graph, mode);
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  const int64_t count = heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  std::vector<CudnnDescriptor> all;
  for (int64_t i = 0; i < count; ++i) all.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  const int64_t known = heuristics.fill(CUDNN_ATTR_ENGINEHEUR_RESULTS, all);
  while (static_cast<int64_t>(all.size()) > known) all.pop_back();
  return all;
}

}  // namespace

std::string PlanRules::text() const {
  return concat("deterministic ", deterministic, " tensor cores ", tensor_cores, " workspace ", workspace_limit,
                " compiled ", most_compiled);
}

PlanTarget PlanTarget::this_gpu(const Stream& stream) {
  PlanTarget target;
  target.handle_ = cudnn_handle(stream);
  return target;
}

PlanTarget PlanTarget::described_by(const std::string& json) {
  PlanTarget target;
  target.properties_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  target.properties_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json);
  target.properties_->finalize();
  return target;
}

CudnnDescriptor PlanTarget::operation_graph(const CudnnGraph& graph) const {
  CudnnDescriptor descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle_) descriptor.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
  descriptor.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph.operations());
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor PlanTarget::heuristics(const CudnnDescriptor& operation_graph, cudnnBackendHeurMode_t mode) const {
  CudnnDescriptor descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operation_graph);
  descriptor.set_enum(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (properties_) descriptor.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties_);
  return descriptor;
}

CudnnDescriptor PlanTarget::plan() const {
  CudnnDescriptor descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (handle_) descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
  if (properties_) descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties_);
  return descriptor;
}

CudnnPlan::CudnnPlan(CudnnDescriptor finalized)
    : plan_(std::move(finalized)), workspace_bytes_(plan_.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)) {}

std::optional<CudnnPlan> CudnnPlan::from_json(const std::string& json, const PlanTarget& target) {
  CudnnDescriptor plan = target.plan();
  try {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json);
  } catch (const Error&) {
    return {};
  }
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  return CudnnPlan(std::move(plan));
}

void CudnnPlan::run(const Stream& stream, std::span<const Binding> bindings, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> memory;
  for (const Binding& binding : bindings) {
    OWT_CHECK_EQ(reinterpret_cast<uintptr_t>(binding.memory) % kTensorAlignment, 0u, "tensor ", binding.id);
    ids.push_back(binding.id);
    memory.push_back(const_cast<void*>(binding.memory));  // cuDNN's API does not take const
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(memory));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::span<void* const>(&workspace, 1));
  pack.finalize();
  OWT_CUDNN(cudnnBackendExecute(cudnn_handle(stream), plan_.get(), pack.get()));
}

void for_each_plan(const CudnnGraph& graph, const PlanRules& rules, const PlanTarget& target,
                   const std::function<PlanVerdict(CudnnPlan plan)>& take) {
  const CudnnDescriptor operation_graph = target.operation_graph(graph);
  int compiled = 0;
  bool taken = false;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const CudnnDescriptor& configuration : configurations(target, operation_graph, mode)) {
      const Engine engine(configuration);
      const bool compiles = compiled < rules.most_compiled && !(taken && mode == CUDNN_HEUR_MODE_FALLBACK);
      if (!engine.allowed(rules) || (engine.compiled && !compiles)) continue;
      CudnnDescriptor descriptor = target.plan();
      descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (descriptor.try_finalize() != CUDNN_STATUS_SUCCESS) continue;  // cuDNN also proposes what it does not support
      CudnnPlan plan(std::move(descriptor));
      if (plan.workspace_bytes() > rules.workspace_limit) continue;
      compiled += engine.compiled;
      const PlanVerdict verdict = take(std::move(plan));
      if (verdict == PlanVerdict::kEnough) return;
      taken = taken || verdict == PlanVerdict::kTaken;
    }
}

}  // namespace owt

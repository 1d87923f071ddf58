// cuDNN execution plans: how one kind of GPU computes a graph. For .cu files.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "layers/gpu/cudnn_graph.h"

namespace owt {

// Restricts the plans that may be used.
struct PlanRules {
  bool deterministic = true;  // only plans whose results are bit-identical in every run
  bool tensor_cores = true;   // with f32 tensors these round factors to 10 bits (TF32)
  int64_t workspace_limit = int64_t{1} << 31;
  int most_compiled = 2;  // limit on plans that cuDNN compiles when they are made, which takes a second or so each

  std::string text() const;  // differs for different rules
};

// The GPU that plans are made for.
class PlanTarget {
 public:
  static PlanTarget this_gpu(const Stream& stream);         // the calling host thread's
  static PlanTarget described_by(const std::string& json);  // cuDNN's device properties; no GPU is needed

  // Descriptors with the GPU-specific attributes set; only the first is finalized.
  CudnnDescriptor operation_graph(const CudnnGraph& graph) const;
  CudnnDescriptor heuristics(const CudnnDescriptor& operation_graph, cudnnBackendHeurMode_t mode) const;
  CudnnDescriptor plan() const;

 private:
  cudnnHandle_t handle_ = nullptr;             // for plans of this GPU
  std::optional<CudnnDescriptor> properties_;  // for plans of another GPU
};

class CudnnPlan {
 public:
  // A tensor outside the graph and its memory: on the GPU, or on the host for a number. Always aligned to 16 bytes.
  struct Binding {
    CudnnGraph::Id id;
    const void* memory;
  };

  // `json`: from json() of the same cuDNN version and kind of GPU. None if cuDNN rejects it.
  static std::optional<CudnnPlan> from_json(const std::string& json, const PlanTarget& target);
  explicit CudnnPlan(CudnnDescriptor finalized);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  std::string json() const { return plan_.text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION); }

  // Queues the plan. `bindings`: all tensors outside the graph. `workspace`: workspace_bytes() bytes for exclusive use.
  void run(const Stream& stream, std::span<const Binding> bindings, void* workspace) const;

 private:
  CudnnDescriptor plan_;
  int64_t workspace_bytes_;
};

// The result of looking at a plan.
enum class PlanVerdict {
  kRefused,
  kTaken,
  kEnough,  // taken, and no more plans are wanted
};

// Makes plans in cuDNN's order, which puts probably fast ones first. Once a plan was taken, cuDNN's fallback plans that
// would have to be compiled are skipped; they are never the fastest.
void for_each_plan(const CudnnGraph& graph, const PlanRules& rules, const PlanTarget& target,
                   const std::function<PlanVerdict(CudnnPlan plan)>& take);

}  // namespace owt

// Execution plans of cuDNN: how a graph is computed on one kind of GPU. For .cu files.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "layers/cudnn_graph.h"

namespace owt {

// Which plans may be used.
struct PlanRules {
  bool deterministic = true;  // only plans that give the same bits every time
  bool tensor_cores = true;   // with f32 tensors these round factors to 10 bits
  int64_t workspace_limit = int64_t{1} << 31;
  int most_compiled = 2;  // plans that cuDNN compiles when they are made, a second or so each

  std::string text() const;  // different for different rules
};

// The GPU that plans are made for.
class PlanTarget {
 public:
  static PlanTarget this_gpu(const Stream& stream);         // the calling host thread's
  static PlanTarget described_by(const std::string& json);  // cuDNN's device properties; no GPU is needed

  // Descriptors with what ties them to the GPU set, the first one finalized.
  CudnnDescriptor operation_graph(const CudnnGraph& graph) const;
  CudnnDescriptor heuristics(const CudnnDescriptor& operation_graph, cudnnBackendHeurMode_t mode) const;
  CudnnDescriptor plan() const;

 private:
  cudnnHandle_t handle_ = nullptr;             // for plans of this GPU
  std::optional<CudnnDescriptor> properties_;  // for plans of another one
};

class CudnnPlan {
 public:
  // A tensor of the graph and its memory, on the GPU, or on the host for a number; aligned to 16 bytes in any case.
  struct Binding {
    CudnnGraph::Id id;
    const void* memory;
  };

  // From json() of the same cuDNN version and kind of GPU. None: cuDNN does not take it.
  static std::optional<CudnnPlan> from_json(const std::string& json, const PlanTarget& target);
  explicit CudnnPlan(CudnnDescriptor finalized);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  std::string json() const { return plan_.text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION); }

  // Queues it. `bindings`: every tensor outside the graph; `workspace`: workspace_bytes() that nobody else uses.
  void run(const Stream& stream, std::span<const Binding> bindings, void* workspace) const;

 private:
  CudnnDescriptor plan_;
  int64_t workspace_bytes_;
};

// What becomes of a plan that was made.
enum class PlanVerdict {
  kRefused,
  kTaken,
  kEnough,  // and no more plans are wanted
};

// Makes plans in cuDNN's order, probably fast ones first. Once one was taken, none that would have to be compiled is
// made of those that cuDNN falls back to: they never are the fastest.
void for_each_plan(const CudnnGraph& graph, const PlanRules& rules, const PlanTarget& target,
                   const std::function<PlanVerdict(CudnnPlan plan)>& take);

}  // namespace owt

// The fastest plan for a graph, found by measuring on the GPU and remembered in PlanCache::process(). For .cu files.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "layers/cudnn_plan.h"

namespace owt {

// Ranks that share a GPU must choose the same and not disturb each other's measurements: whoever chooses or measures
// holds one of these for the whole of it.
class MeasuringTurn {
 public:
  MeasuringTurn();

 private:
  std::unique_lock<std::mutex> lock_;
};

// On the calling host thread's GPU; at most a sixteenth of its memory becomes workspace.
PlanRules rules_for(Cuda cuda);

struct ChosenPlan {
  CudnnPlan plan;
  double ms = 0;  // 0: not measured, for want of memory
};

// Looks at a plan before it is timed: may change the tensors' memory (filled with 0x3c bytes) and run the plan.
using PlanCheck =
    std::function<bool(const std::function<void*(CudnnGraph::Id)>& memory, const std::function<void()>& run)>;

// For checks: whether the first element of an f32 or bf16 tensor on the GPU is NaN. The host waits.
bool starts_with_nan(const void* memory, DType dtype, const Stream& stream);

// The fastest of the plans that the rules allow, that can be captured into a CUDA graph and that `check` accepts. None
// where there is no such plan. Where memory is too short for measuring: with a warning, cuDNN's first choice, or none
// if it would have to be checked; for the life of the process.
std::optional<ChosenPlan> choose_plan(const CudnnGraph& graph, const PlanRules& rules, const Stream& stream,
                                      const PlanCheck& check = {});

// What cannot be chosen by a plan alone: the remembered text for `what` on this GPU, else the outcome of measure(),
// which is then remembered; an empty one, nothing could be measured, for the life of the process.
std::string remembered(const std::string& what, const std::function<std::string()>& measure);

// The fastest of some candidates, at least one: the best four by their first times, `ms`, are measured a second time by
// again(index), and the smaller of both times counts.
struct Fastest {
  size_t index;
  double ms;
};
Fastest fastest_of(const std::vector<double>& ms, const std::function<double(size_t)>& again);

// Milliseconds that the work takes on the stream within a CUDA graph: the mean of a few runs without the outliers, each
// after the GPU's L2 cache has been overwritten, because in a step other work lies between two runs. The clocks are
// warm: the first call for a GPU keeps it busy for a tenth of a second before it measures. The first run that takes
// more than twice `best_ms` is the last. Throws OutOfMemory.
double time_work(const Stream& stream, const std::function<void()>& queue_work, double best_ms = 1e9);

}  // namespace owt

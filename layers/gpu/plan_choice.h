// Finds the fastest plan for a graph by measurement on the GPU and stores it in PlanCache::process(). For .cu files.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "layers/gpu/cudnn_plan.h"

namespace owt {

// A lock for choosing and measuring. Ranks that share a GPU must choose the same plans and must not disturb each
// other's measurements. Code that chooses or measures holds the lock all the time.
class MeasuringTurn {
 public:
  MeasuringTurn();

 private:
  std::unique_lock<std::mutex> lock_;
};

// For the calling host thread's GPU; the workspace limit is a sixteenth of its memory.
PlanRules rules_for(Cuda cuda);

struct ChosenPlan {
  CudnnPlan plan;
  double ms = 0;  // 0: not measured, for lack of memory
};

constexpr int kFillByte = 0x3c;  // fills the tensors of a plan that is measured: 0.0115 in f32 and in bf16

// Checks a plan before it is timed. It may change the memory of the tensors (filled with kFillByte) and run the plan.
using PlanCheck =
    std::function<bool(const std::function<void*(CudnnGraph::Id)>& memory, const std::function<void()>& run)>;

// For checks: whether the first element of an f32 or bf16 tensor on the GPU is NaN. Blocks the host.
bool starts_with_nan(const void* memory, DType dtype, const Stream& stream);

// The fastest plan that obeys the rules, can be captured into a CUDA graph and passes `check`; none if there is no such
// plan. If memory is too short for measuring, it warns and returns cuDNN's first choice, or none if `check` is given;
// this holds for the life of the process.
std::optional<ChosenPlan> choose_plan(const CudnnGraph& graph, const PlanRules& rules, const Stream& stream,
                                      const PlanCheck& check = {});

// For choices that involve more than a plan: the stored text for `what` on this GPU, else the result of measure(),
// which is stored. An empty result (nothing could be measured) is stored only for the life of the process.
std::string remembered(const std::string& what, const std::function<std::string()>& measure);

// The fastest candidate of at least one. `ms`: the first times. The best four are measured again by again(index); the
// smaller of both times counts.
struct Fastest {
  size_t index;
  double ms;
};
Fastest fastest_of(const std::vector<double>& ms, const std::function<double(size_t)>& again);

// Milliseconds that the work takes on the stream within a CUDA graph: the mean of a few runs without outliers. The
// GPU's L2 cache is overwritten before each run, because in a step other work runs in between. The clocks are warm: the
// first call for a GPU keeps it busy for a tenth of a second before measuring. The first run that takes more than twice
// `best_ms` is the last. Throws OutOfMemory.
double time_work(const Stream& stream, const std::function<void()>& queue_work, double best_ms = 1e9);

}  // namespace owt

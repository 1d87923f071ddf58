// Steps as CUDA graphs: each kind of step is recorded once for every slot of results, and replayed from then on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "layers/layer.h"
#include "src/core/graph.h"
#include "src/core/profiler.h"
#include "src/parallel/plan.h"

namespace owt {

class StepRecorder {
 public:
  // What happens to the weights in a step, and whether their averages take them in.
  using Weights = std::pair<StepKind, bool>;

  // profiler must outlive this; it may be null.
  StepRecorder(size_t slots, Profiler* profiler) : slots_(slots), profiler_(profiler) {}

  // Queues the step of this batch with its results in this slot. The first step of a kind is queued as it is, since it
  // makes what is missing and chooses algorithms; the next one of each slot is recorded.
  void run(const Batch& batch, Mode mode, const Weights& weights, size_t slot, const Stream& stream,
           const std::function<void()>& queue);

 private:
  struct Recorded {
    Graph graph;
    std::shared_ptr<const Profiler::Recording> scopes;
  };
  // What a recorded step depends on: rows, addresses of images and labels, channels of the images (which tell their
  // layout), mode, what happens to the weights, timed or not.
  using Kind = std::tuple<int64_t, const void*, const void*, int64_t, Mode, Weights, bool>;

  size_t slots_;
  Profiler* profiler_;
  std::map<Kind, std::vector<Recorded>> recorded_;  // one for each slot
};

}  // namespace owt
